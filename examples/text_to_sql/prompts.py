"""What the agents are told about each database: its tables, and four questions with their queries."""

from __future__ import annotations

Shots = tuple[tuple[str, str], ...]

TABLES = {
    "world": "countries(name, capital, continent, population)\ncities(name, country, population)",
    "web": "statuses(code, phrase, kind)\ntypes(extension, type)",
    "system": "errors(number, name, message)\nsignals(number, name)",
    "america": "states(code, name)\ncounties(name, state)",
    "python": "operations(number, name)\ntokens(number, name)",
}
SHOTS: dict[str, Shots] = {
    "world": (
        ("What is the capital of Italy?", "SELECT capital FROM countries WHERE name = 'Italy'"),
        ("How many people live in the city Lyon?", "SELECT population FROM cities WHERE name = 'Lyon'"),
        ("How many countries are in Africa?", "SELECT count(*) FROM countries WHERE continent = 'Africa'"),
        (
            "How many countries have more than 300000 people?",
            "SELECT count(*) FROM countries WHERE population > 300000",
        ),
    ),
    "web": (
        ("What is the phrase of status 299?", "SELECT phrase FROM statuses WHERE code = 299"),
        ("Which extension has the type text/xyz?", "SELECT extension FROM types WHERE type = 'text/xyz'"),
        ("How many statuses are of the kind success?", "SELECT count(*) FROM statuses WHERE kind = 'success'"),
        ("How many statuses have a code below 150?", "SELECT count(*) FROM statuses WHERE code < 150"),
    ),
    "system": (
        ("What is the name of error 777?", "SELECT name FROM errors WHERE number = 777"),
        ("Which number has the message No error?", "SELECT number FROM errors WHERE message = 'No error'"),
        ("Which number has the signal SIGNONE?", "SELECT number FROM signals WHERE name = 'SIGNONE'"),
        ("How many signals have a number below 40?", "SELECT count(*) FROM signals WHERE number < 40"),
    ),
    "america": (
        ("What is the code of Guam?", "SELECT code FROM states WHERE name = 'Guam'"),
        ("In which state is Kings County?", "SELECT state FROM counties WHERE name = 'Kings County'"),
        ("How many counties have the name Lake County?", "SELECT count(*) FROM counties WHERE name = 'Lake County'"),
        ("Which state has the code XX?", "SELECT name FROM states WHERE code = 'XX'"),
    ),
    "python": (
        ("What is the name of token 99?", "SELECT name FROM tokens WHERE number = 99"),
        ("Which number has the operation WAIT?", "SELECT number FROM operations WHERE name = 'WAIT'"),
        ("How many operations have a number below 300?", "SELECT count(*) FROM operations WHERE number < 300"),
        ("Which number has the token SPACE?", "SELECT number FROM tokens WHERE name = 'SPACE'"),
    ),
}
CHECKS: Shots = (
    ("What is the age of Tom?\nSELECT name FROM cats WHERE name = 'Tom'\nTom", "no"),
    ("How many cats are there?\nSELECT count(*) FROM cats\n12", "yes"),
    ("Which cat has the colour red?\nSELECT name FROM cats WHERE colour = 'red'\nTom", "yes"),
)

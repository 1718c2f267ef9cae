"""`leyden run` and `leyden train --auto` with programs on the openai SDK that know nothing of Leyden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from leyden.testing.server import EOS, FakeModelServer, token_ids

pytestmark = pytest.mark.slow

PYTHON = sys.executable
LEYDEN = [PYTHON, "-c", "from leyden.cli import main; main()"]

ASK = """
import asyncio, os, sys, threading
import openai

def ask(text):
    with openai.OpenAI(max_retries=0) as client:
        answer = client.chat.completions.create(model="own", messages=[{"role": "user", "content": text}])
        print(answer.choices[0].message.content)

async def ask_async(text):
    async with openai.AsyncOpenAI(max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="own", messages=[{"role": "user", "content": text}], stream=True)
        print("".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]))
"""
PLAIN = (
    ASK
    + """
ask(sys.argv[1])
thread = threading.Thread(target=ask, args=("in a thread",))
thread.start()
thread.join()
asyncio.run(ask_async("in a loop"))
"""
)
NAMED = (
    ASK
    + """
import leyden
ask("unnamed")
with leyden.agent("writer"):
    ask(sys.argv[1])
"""
)


@pytest.fixture(autouse=True)
def instrumented() -> None:
    """The programs are instrumented, not this process."""


def leyden(folder: Path, provider: FakeModelServer, *arguments: str) -> tuple[int, str, str]:
    env = {
        **os.environ,
        "OPENAI_BASE_URL": provider.base_url,
        "OPENAI_API_KEY": "secret",
        "LEYDEN_PLUGINS": "openai",
        "PYTHONPATH": str(folder),
    }
    done = subprocess.run(
        [*LEYDEN, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


def spans(folder: Path, provider: FakeModelServer) -> list[dict[str, Any]]:
    code, out, err = leyden(folder, provider, "export", "--what", "spans")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_a_program_without_agent_names_is_recorded_and_told_that_its_calls_are_nobodys(
    tmp_path: Path, provider: FakeModelServer
) -> None:
    (tmp_path / "app.py").write_text(PLAIN)
    code, out, err = leyden(tmp_path, provider, "run", "--", PYTHON, "app.py", "hello")
    assert (code, out.count("answer of own to 1 messages\n")) == (0, 3), err
    assert "leyden: LLM calls: 3 seen ((no known agent) 3), 0 of a known agent, 0 routed to a policy" in err
    assert "calls of no known agent cannot be marked: install the adapter of the framework" in err
    calls = [span for span in spans(tmp_path, provider) if span["kind"] == "llm"]
    asked = [json.loads(span["attributes"]["gen_ai.input.messages"])[0]["content"] for span in calls]
    assert asked == ["hello", "in a thread", "in a loop"]
    assert {span["call"]["server"] for span in calls} == {provider.origin}
    assert [body["model"] for body in provider.bodies] == ["own"] * 3
    assert not any("return_token_ids" in body for body in provider.bodies)


def test_a_marked_agent_goes_to_the_policy_and_the_rest_stays(
    tmp_path: Path, provider: FakeModelServer, policy_server: FakeModelServer
) -> None:
    (tmp_path / "app.py").write_text(NAMED)
    mark = ["--train", "writer", "--policy", f"policy@{policy_server.base_url}"]
    code, out, err = leyden(tmp_path, provider, "run", *mark, "--", PYTHON, "app.py", "hello")
    assert (code, out) == (0, "answer of own to 1 messages\nanswer of policy to 1 messages\n"), err
    assert "2 seen ((no known agent) 1, writer 1), 1 of a known agent, 1 routed to a policy, 1 usable" in err
    assert [body["messages"][0]["content"] for body in provider.bodies] == ["unnamed"]
    [request] = [one for one in policy_server.requests if one.method == "POST"]
    assert "secret" not in json.dumps(request.headers)
    [call] = [span["call"] for span in spans(tmp_path, provider) if span["kind"] == "llm" and span.get("agent")]
    assert tuple(call["sampled_ids"]) == (*token_ids("answer of policy to 1 messages"), EOS)


def test_a_marked_call_that_cannot_be_routed_fails_the_run_even_if_the_program_hides_it(
    tmp_path: Path, provider: FakeModelServer, policy_server: FakeModelServer
) -> None:
    hiding = NAMED.replace(
        "    ask(sys.argv[1])", "    try:\n        ask('x')\n    except Exception:\n        print('hidden')"
    )
    (tmp_path / "app.py").write_text(hiding)
    policy_server.return_token_ids = False
    mark = ["--train", "writer", "--policy", f"policy@{policy_server.base_url}"]
    code, out, err = leyden(tmp_path, provider, "run", *mark, "--", PYTHON, "app.py")
    assert (code, out) == (2, "answer of own to 1 messages\nhidden\n")
    assert "the run failed: MissingTokenIds: policy 'default' at " in err


ALGORITHM = """
import os
import leyden

class Look:
    settings = {}

    async def run(self, run):
        await run.publish({"default": leyden.Endpoint(base_url=os.environ["POLICY"], model="policy", version=5)})
        episodes = await run.rollout(run.tasks, n=2)
        calls = [t for e in episodes for t in e.transitions("default")]
        print("rewards", sorted(str(e.reward) for e in episodes))
        print("usable", len(calls), {t.call.version for t in calls}, {t.agent for t in calls})
"""


def test_train_auto_end_to_end(
    tmp_path: Path, provider: FakeModelServer, policy_server: FakeModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").write_text(NAMED + "print(len(sys.argv[1]) if sys.argv[1] != 'silent' else 'nothing')")
    (tmp_path / "look.py").write_text(textwrap.dedent(ALGORITHM))
    (tmp_path / "tasks.jsonl").write_text('{"question": "four"}\n{"question": "silent"}\n')
    (tmp_path / "look.dist-info").mkdir()
    (tmp_path / "look.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: look\nVersion: 1\n")
    (tmp_path / "look.dist-info" / "entry_points.txt").write_text("[leyden.algorithms]\nlook = look:Look\n")
    monkeypatch.setenv("POLICY", policy_server.base_url)
    code, out, err = leyden(
        tmp_path, provider, "train", "--auto", "--tasks", "tasks.jsonl", "--train", "writer", "--algorithm", "look",
        "--directory", "run", "--", PYTHON, "app.py", "{question}",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "rewards ['4.0', '4.0', 'None', 'None']" in out
    assert "usable 4 {5} {'writer'}" in out
    assert "no reward 2: the last line that the program printed is no number: 'nothing'" in out
    posts = [one.body["messages"][0]["content"] for one in policy_server.requests if one.method == "POST"]
    assert sorted(posts) == ["four", "four", "silent", "silent"]
    assert [body["messages"][0]["content"] for body in provider.bodies] == ["unnamed"] * 4

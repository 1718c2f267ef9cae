"""What is CrewAI's own: roles, processes, retries, flows, conversions, guardrails, models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from crewai import LLM, Agent, Crew, Process, Task
from crewai.flow.flow import Flow, start
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool
from pydantic import BaseModel

import leyden
from leyden import attributes
from leyden.plugins import plugins
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden.types import Endpoint, Span
from leyden_crewai.models import models
from leyden_crewai.patches import patches


class Answer(BaseModel):
    """What a converted answer looks like."""

    colour: str
    count: int


@pytest.fixture(autouse=True)
def instrumented() -> Iterator[None]:
    leyden.instrument()
    yield
    leyden.uninstrument()


@pytest.fixture
def server() -> Iterator[FakeModelServer]:
    with FakeModelServer(reply=lambda body: "Blue.") as server:
        yield server


@pytest.fixture
def policy() -> Iterator[FakeModelServer]:
    with FakeModelServer(reply=lambda body: "Red.") as server:
        yield server


def llm(server: FakeModelServer, **given: Any) -> Any:
    return LLM(model="own", provider="openai", base_url=server.base_url, api_key="own-key", max_retries=0, **given)


def agent(server: FakeModelServer, role: str = "writer", **given: Any) -> Agent:
    return Agent(
        role=role, goal="Help.", backstory=f"I am {role}.", **{"llm": llm(server), "max_retry_limit": 0, **given}
    )


def task(agent: Agent | None, **given: Any) -> Task:
    return Task(description="Say a colour.", expected_output="One line.", agent=agent, **given)


def crew(*tasks: Task, **given: Any) -> Crew:
    return Crew(agents=[one.agent for one in tasks if one.agent is not None], tasks=list(tasks), **given)


def marked(policy: FakeModelServer, *names: str) -> Any:
    endpoint = Endpoint(base_url=policy.base_url, model="policy", version=1, api_key="policy-key")
    return recorded_attempt({"default": endpoint}, dict.fromkeys(names, "default"))


def callers(attempt: RecordedAttempt) -> list[str]:
    return [span.agent for span in attempt.llm]


def turns(attempt: RecordedAttempt) -> list[Span]:
    return [span for span in attempt.spans if span.kind == "agent"]


def test_every_patch_found_its_place() -> None:
    import crewai.lite_agent  # noqa: F401

    assert patches.missing == []
    assert {patch.symbol for patch in patches.patches if not patch.optional} <= {
        f"{done.owner.__name__}.{done.name}" for done in patches._applied
    }


@pytest.mark.parametrize(("role", "path"), [("  senior\n writer \n", "senior writer"), ("QA/Ops", "QA-Ops")])
def test_a_role_is_one_level_of_the_path(server: FakeModelServer, role: str, path: str) -> None:
    with recorded_attempt() as attempt:
        crew(task(agent(server, role))).kickoff()
    assert callers(attempt) == [path]


def test_an_agent_keeps_its_path_whatever_is_filled_into_its_role(server: FakeModelServer) -> None:
    writer = agent(server, "{topic} writer")
    team = crew(task(writer))
    assert [found.path for found in plugins.discover(team)] == ["{topic} writer"]
    with recorded_attempt() as attempt:
        team.kickoff(inputs={"topic": "snow"})
        team.kickoff(inputs={"topic": "rain"})
    assert callers(attempt) == ["{topic} writer"] * 2
    assert "I am rain writer." in json.dumps(server.bodies[1]) or "rain writer" in json.dumps(server.bodies[1])


def test_the_manager_is_an_agent_and_its_coworkers_are_below_it(server: FakeModelServer) -> None:
    def reply(body: dict[str, Any]) -> Any:
        tools = [one["function"]["name"] for one in body.get("tools") or ()]
        if tools and not any(message["role"] == "tool" for message in body["messages"]):
            (delegate,) = [name for name in tools if "delegate" in name]
            return {
                "tool_calls": [{"name": delegate, "arguments": {"task": "Say.", "context": "c", "coworker": "writer"}}]
            }
        return "Blue."

    server.reply = reply
    writer = agent(server)
    team = Crew(agents=[writer], tasks=[task(None)], process=Process.hierarchical, manager_llm=llm(server))
    found = {info.path: info.target for info in plugins.discover(team)}
    assert list(found) == ["Crew Manager", "Crew Manager/writer"]
    assert found["Crew Manager/writer"] is writer
    with recorded_attempt() as attempt:
        team.kickoff()
    assert callers(attempt) == ["Crew Manager", "Crew Manager/writer", "Crew Manager"]
    (delegation,) = [span for span in attempt.spans if span.kind == "tool"]
    below = [span for span in turns(attempt) if span.parent_id == delegation.span_id]
    assert [span.agent for span in below] == ["Crew Manager/writer"]


def test_coworkers_of_an_agent_that_may_delegate_are_found(server: FakeModelServer) -> None:
    team = crew(task(agent(server, "boss", allow_delegation=True)), task(agent(server)))
    assert [info.path for info in plugins.discover(team)] == ["boss", "writer", "boss/writer"]


def test_a_retry_is_the_same_turn(server: FakeModelServer) -> None:
    server.fail_first = 1
    with recorded_attempt() as attempt:
        crew(task(agent(server, max_retry_limit=2))).kickoff()
    assert [span.agent for span in turns(attempt)] == ["writer"]
    assert callers(attempt) == ["writer", "writer"]


def test_a_crew_in_a_tool_is_below_the_agent(server: FakeModelServer) -> None:
    @tool
    def ask() -> str:
        """Ask somebody of the same role."""
        return str(agent(server).kickoff("Say a colour.").raw)

    def reply(body: dict[str, Any]) -> Any:
        called = any(message["role"] == "tool" for message in body["messages"])
        return {"tool_calls": [{"name": "ask", "arguments": {}}]} if body.get("tools") and not called else "Blue."

    server.reply = reply
    with recorded_attempt() as attempt:
        crew(task(agent(server), tools=[ask])).kickoff()
    assert callers(attempt) == ["writer", "writer/writer", "writer"]


def test_tasks_in_threads_belong_to_their_agents(server: FakeModelServer) -> None:
    server.delay_s = 0.05
    with recorded_attempt() as attempt:
        first, second = (task(agent(server, role), async_execution=True) for role in ("a", "b"))
        crew(first, second, task(agent(server, "c"), context=[first, second])).kickoff()
    assert sorted(callers(attempt)) == ["a", "b", "c"]
    assert all(f"I am {span.agent}." in str(span.attributes) for span in attempt.llm)


async def test_every_way_to_start(server: FakeModelServer) -> None:
    with recorded_attempt() as attempt:
        await agent(server).kickoff_async("Say a colour.")
        await agent(server).kickoff("Say a colour.")  # in a loop it gives a coroutine
        await asyncio.to_thread(agent(server).kickoff, "Say a colour.")
        await crew(task(agent(server))).akickoff()
        await crew(task(agent(server))).kickoff_for_each_async(inputs=[{"n": "1"}, {"n": "2"}])
    assert callers(attempt) == ["writer"] * 6
    assert [span.agent for span in turns(attempt)] == ["writer"] * 6


def test_flows(server: FakeModelServer) -> None:
    writer = agent(server)

    class Steps(Flow[dict[str, Any]]):
        @start()
        def write(self) -> str:
            return str(crew(task(writer)).kickoff().raw)

        @start()
        async def plan(self) -> str:
            return str((await agent(server, "planner").kickoff_async("Say a colour.")).raw)

    assert [info.path for info in plugins.discover(Steps)] == ["writer"]
    assert [info.target for info in plugins.discover(Steps())] == [writer]
    with recorded_attempt() as attempt:
        Steps().kickoff()
    assert sorted(callers(attempt)) == ["planner", "writer"]


class Local(BaseLLM):
    """A model class of the user's own, which knows no tools: CrewAI puts them into the text."""

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return "Final Answer: Green."

    def supports_function_calling(self) -> bool:
        return False


class Talkative(Local):
    """The same, of a kind that knows tools."""

    def supports_function_calling(self) -> bool:
        return True


def converted(body: dict[str, Any]) -> Any:
    """Blue by the schema that the agent is asked for; green for the text that CrewAI asks to convert."""
    if body.get("tools"):
        return {"tool_calls": [{"name": body["tools"][0]["function"]["name"], "arguments": GREEN.model_dump()}]}
    return (GREEN if "It is green" in str(body["messages"]) else Answer(colour="blue", count=2)).model_dump_json()


GREEN = Answer(colour="green", count=3)


def in_words() -> Any:
    """A guardrail after which the answer fits no schema any more; without annotations, which CrewAI would read."""
    return lambda output: (True, "It is green, and three.")


@pytest.mark.parametrize("kind", ["output_pydantic", "output_json"])
@pytest.mark.parametrize("local", [False, True])
def test_the_converters_call_is_the_agents(
    server: FakeModelServer, policy: FakeModelServer, kind: str, local: bool
) -> None:
    policy.reply = converted
    given = {"llm": Talkative(model="local")} if local else {}
    with marked(policy, "writer") as attempt:
        output = crew(task(agent(server, **given), guardrail=in_words(), **{kind: Answer})).kickoff()
    assert (output.json_dict or output.pydantic.model_dump()) == GREEN.model_dump()
    assert callers(attempt) == ["writer"] * 2
    assert len(policy.bodies) == 2
    assert not server.requests
    assert len(turns(attempt)) == 1


async def test_the_converters_call_is_the_agents_in_an_event_loop(
    server: FakeModelServer, policy: FakeModelServer
) -> None:
    policy.reply = converted
    with marked(policy, "writer") as attempt:
        output = await crew(task(agent(server), guardrail=in_words(), output_pydantic=Answer)).akickoff()
    assert output.pydantic == GREEN
    assert callers(attempt) == ["writer"] * 2
    assert not server.requests


def test_a_guardrail_is_a_helper(server: FakeModelServer, policy: FakeModelServer) -> None:
    server.reply = lambda body: '{"valid": true, "feedback": null}'
    with marked(policy, "*") as attempt:
        output = crew(task(agent(server), guardrail="It is a colour.")).kickoff()
    assert output.raw == "Red."
    assert callers(attempt) == ["writer", ""]
    assert len(server.bodies) == len(policy.bodies) == 1


def test_a_plan_is_a_helper(server: FakeModelServer, policy: FakeModelServer) -> None:
    server.reply = lambda body: '{"list_of_plans_per_task": [{"task_number": 1, "task": "say", "plan": "say it"}]}'
    with marked(policy, "*") as attempt:
        crew(task(agent(server)), planning=True, planning_llm=llm(server)).kickoff()
    assert callers(attempt)[0] == ""
    assert set(callers(attempt)[1:]) == {"writer"}
    assert [span.agent for span in turns(attempt)] == ["writer"]


def test_a_call_that_cannot_be_routed_fails_the_attempt_and_is_not_sent(server: FakeModelServer) -> None:
    with recorded_attempt({}, {"writer": "default"}) as attempt, pytest.raises(Exception, match="marked for policy"):
        crew(task(agent(server, max_retry_limit=2))).kickoff()
    assert len(attempt.scope.failures) == 3, "CrewAI tries three times"
    assert not server.requests


def test_a_model_that_knows_no_tools_is_stood_in_for(server: FakeModelServer, policy: FakeModelServer) -> None:
    used = []

    @tool
    def look(word: str) -> str:
        """Look a word up."""
        used.append(word)
        return f"{word} is warm"

    def reply(body: dict[str, Any]) -> Any:
        if used:
            return "Thought: I know.\nFinal Answer: Warm."
        return 'Thought: look.\nAction: look\nAction Input: {"word": "w"}\nObservation: made up by the model'

    policy.reply = reply
    writer = agent(server, llm=Local(model="local", temperature=0.5))
    with marked(policy, "writer") as attempt:
        output = crew(task(writer, tools=[look])).kickoff()
    assert output.raw == "Warm."
    assert used == ["w"], "the stop words of the conversation hold for the stand-in too"
    assert all(body["temperature"] == 0.5 and "tools" not in body for body in policy.bodies)
    assert callers(attempt) == ["writer"] * 2
    assert [span.name for span in attempt.spans if span.kind == "tool"] == ["execute_tool look"]
    assert output.token_usage.total_tokens > 0
    with recorded_attempt() as attempt:
        assert crew(task(writer)).kickoff().raw == "Green."


def test_a_tools_arguments_and_result_are_recorded() -> None:
    @tool
    def setting(config: str, input: str = "") -> dict[str, str]:
        """Make a setting."""
        return {"made": config}

    with recorded_attempt() as attempt:
        setting.run(config="warm")
        setting.run("cold")
        setting.to_structured_tool().invoke({"config": "wet"})
    given = [span.attributes[attributes.TOOL_ARGUMENTS] for span in attempt.spans]
    assert given == ['{"config": "warm"}', "cold", '{"config": "wet"}']
    assert [json.loads(span.attributes[attributes.TOOL_RESULT])["made"] for span in attempt.spans] == [
        "warm",
        "cold",
        "wet",
    ]


def test_a_tool_that_fails_is_a_failed_span() -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise ValueError("no way")

    with recorded_attempt() as attempt, pytest.raises(ValueError, match="no way"):
        broken.run()
    (span,) = attempt.spans
    assert span.error == "ValueError: no way"


def test_model_classes_are_left_as_they_were(server: FakeModelServer, policy: FakeModelServer) -> None:
    call = vars(Local)["call"]
    with marked(policy, "writer"):
        crew(task(agent(server, llm=Local(model="local")))).kickoff()
    assert vars(Local)["call"] is not call
    leyden.uninstrument()
    assert vars(Local)["call"] is call
    assert not models.active


def test_the_responses_api_is_stood_in_for(server: FakeModelServer, policy: FakeModelServer) -> None:
    with marked(policy, "writer") as attempt:
        output = crew(task(agent(server, llm=llm(server, api="responses")))).kickoff()
    assert output.raw == "Red."
    assert [request.path for request in policy.requests] == ["/v1/chat/completions"]
    assert not attempt.scope.failures


async def test_one_crew_runs_many_tasks_at_once(server: FakeModelServer) -> None:
    server.reply = lambda body: "of " + str(body["messages"][-1]["content"]).split("topic-")[1][:1]
    team = crew(Task(description="Say of topic-{topic}.", expected_output="One line.", agent=agent(server)))

    async def run(topic: int) -> str:
        with recorded_attempt() as attempt:
            output = await plugins.first("leyden_run", target=team, task={"topic": str(topic)})
        assert callers(attempt) == ["writer"]
        return str(output.raw)

    assert await asyncio.gather(*(run(topic) for topic in range(4))) == [f"of {topic}" for topic in range(4)]
    assert team.tasks[0].output is None


async def test_an_agent_runs_on_a_task(server: FakeModelServer) -> None:
    with recorded_attempt() as attempt:
        output = await plugins.first("leyden_run", target=agent(server), task={"n": 1})
    assert output.raw == "Blue."
    assert callers(attempt) == ["writer"]
    assert '{"n": 1}' in str(server.bodies[0]["messages"])

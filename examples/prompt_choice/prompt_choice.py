"""An algorithm of one's own: the better of several prompts, found by trying those more often that are rewarded more."""

from __future__ import annotations

import math
import random

import leyden


class PromptChoice:
    """Tries prompt k with a chance in proportion to exp(its mean reward / temperature); ends with the best mean."""

    def __init__(self, *prompts: str, steps: int = 12, batch: int = 8, temperature: float = 0.3) -> None:
        self.settings = {"prompts": prompts, "steps": steps, "batch": batch, "temperature": temperature}
        self.prompts, self.steps, self.batch, self.temperature = prompts, steps, batch, temperature

    async def run(self, run: leyden.TrainingRun) -> None:
        """Learn which prompt is best."""
        state = run.load_state() or {"step": 0, "rewards": [[0.5] for _ in self.prompts]}
        if state["step"] == 0:
            await self.evaluate(run, 0, step=0)
        for step in range(state["step"] + 1, self.steps + 1):
            chance = random.Random(f"{run.seed} {step}")
            weights = [math.exp(mean(rewards) / self.temperature) for rewards in state["rewards"]]
            tried = chance.choices(range(len(self.prompts)), weights)[0]
            await self.publish(run, tried)
            episodes = await run.rollout(chance.choices(run.tasks, k=self.batch))
            rewards = [episode.reward for episode in episodes if episode.reward is not None]
            state["rewards"][tried] += rewards
            run.log({"train/reward": mean(rewards), "train/prompt": tried}, step=step)
            run.save_state({**state, "step": step})
            run.progress(step, self.steps)
        await self.evaluate(run, max(range(len(self.prompts)), key=lambda k: mean(state["rewards"][k])), self.steps)

    async def publish(self, run: leyden.TrainingRun, number: int) -> None:
        """Let the marked agents run on one of the prompts."""
        prompt = leyden.Prompt(text=self.prompts[number], version=number)
        await run.publish(dict.fromkeys(run.policies, prompt))

    async def evaluate(self, run: leyden.TrainingRun, number: int, step: int) -> None:
        """Log the held-out score of one of the prompts."""
        await self.publish(run, number)
        episodes = await run.rollout(run.val_tasks["val"], mode="val")
        run.log({"val/reward": mean([episode.reward or 0.0 for episode in episodes])}, step=step)


def mean(values: list[float]) -> float:
    """The arithmetic mean; 0.0 of nothing."""
    return sum(values) / len(values) if values else 0.0

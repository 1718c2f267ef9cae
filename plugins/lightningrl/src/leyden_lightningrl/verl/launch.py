"""One training run on verl, start to end: servers, Ray, TransferQueue, trainer, `fit()`, export, clean end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leyden.errors import ConfigError, LeydenError
from leyden_lightningrl import output
from leyden_lightningrl.config import Settings
from leyden_lightningrl.verl.cpu import server

if TYPE_CHECKING:
    from leyden_lightningrl.verl.manager import RolloutManager

SHARED_MEMORY = Path("/dev/shm")
WEIGHTS_NAME = "leyden-weights-"


class TrainerFailed(LeydenError, RuntimeError):
    """verl, Ray or torch raised; the message says what and where to read more."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a run that is known before it starts."""

    settings: Settings
    device: str
    """"cpu" or "cuda"."""
    model: Path
    directory: Path
    tasks: int
    seed: int
    validates: bool
    resume_from: Path | None = None

    @property
    def replicas(self) -> int:
        """Rollout servers."""
        return max(1, self.settings.gpus * self.settings.nodes // self.settings.tensor_parallel)


def prepare_environment(plan: Plan) -> dict[str, str]:
    """Set what verl and Ray read from the environment, here and (returned) in Ray's workers.

    Must come before the first import of verl: it chooses its platform as it is imported.
    """
    shared = {
        "TRANSFER_QUEUE_ENABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "TRANSFER_QUEUE_LOGGING_LEVEL": "ERROR",
        "TQ_LOGGING_LEVEL": "ERROR",
        "VERL_LOGGING_LEVEL": "WARNING",
    }
    if plan.device == "cpu":
        shared |= {"VERL_PLATFORM": "cpu", "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
        # Ray starts its workers with niceness 15: anything else on the machine, the agents included, would starve them.
        os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.update(shared)
    os.environ.setdefault("TQDM_DISABLE", "1")  # verl's progress bar; Leyden shows its own
    # Python reads an empty value as unset: workers may keep their compiled modules, or each starts three times slower.
    return shared | {"OMP_NUM_THREADS": str(plan.settings.cores), "PYTHONDONTWRITEBYTECODE": ""}


def train(plan: Plan, manager: RolloutManager) -> Path:
    """Train to the end; returns the folder of the trained policy. Blocks, so run it in a thread.

    Raises `TrainerFailed` for what verl, Ray or torch raise, other `LeydenError`s as they are, and the manager's
    `Stopped` once the run was cancelled.
    """
    from leyden_lightningrl.verl.manager import Stopped

    try:
        return train_with(plan, manager)
    except (LeydenError, Stopped):
        raise
    except Exception as error:
        cause = getattr(error, "cause", None) or error  # Ray wraps the worker's own error
        if isinstance(cause, LeydenError):
            raise cause from error
        last = str(cause).strip().splitlines()[-1:] or [""]
        raise TrainerFailed(
            f"the trainer failed with {type(cause).__name__}: {last[0]} (more in {plan.directory}: verl.log, ray-logs, "
            "vllm-0.log)"
        ) from error


def train_with(plan: Plan, manager: RolloutManager) -> Path:
    """`train` with errors as they come."""
    from leyden_lightningrl.verl.config import make_config

    with ExitStack() as stack:
        stack.enter_context(output.to_file(plan.directory / "verl.log"))
        environment = prepare_environment(plan)
        addresses: list[str] = []
        files: list[str] = []
        if plan.device == "cpu":
            # First, because a server takes as long to start as everything up to the loaded worker.
            addresses = stack.enter_context(servers(plan))
            files = stack.enter_context(weights_files(plan.replicas))
        config = make_config(
            plan.settings,
            device=plan.device,
            model=plan.model,
            directory=plan.directory,
            tasks=plan.tasks,
            seed=plan.seed,
            validates=plan.validates and plan.resume_from is None,
            addresses=addresses,
            weights_files=files,
            resume_from=plan.resume_from,
        )
        if not plan.validates:
            config.trainer.test_freq = -1
        check_config(config)
        manager.check_stopped()
        stack.enter_context(ray_and_queue(plan, config, environment))
        return run_trainer(plan, manager, config)


def check_config(config: Any) -> None:
    """verl's own checks. Raises `ConfigError` with verl's reason."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        validate_config(
            config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config)
        )
    except (AssertionError, ValueError) as error:
        raise ConfigError(f"verl refuses the configuration: {error}") from error


def run_trainer(plan: Plan, manager: RolloutManager, config: Any) -> Path:
    """Trainer, `fit()`, export."""
    from leyden_lightningrl.verl.trainer import LeydenTrainer

    manager.check_stopped()
    trainer = LeydenTrainer(config, plan.settings, plan.device)
    trainer.init()
    manager.check_stopped()
    manager.addresses = trainer.llm_server_manager.get_addresses()
    trainer.fit(manager)
    folder = plan.directory / "policy"
    trainer.actor_rollout_wg.export_policy(str(folder))
    return folder


@contextmanager
def servers(plan: Plan) -> Iterator[list[str]]:
    """vLLM server processes, one per replica, started but not waited for."""
    settings = plan.settings
    started: list[server.ServerProcess] = []
    try:
        for index in range(plan.replicas):
            port = server.free_port()
            command = server.server_command(
                str(plan.model),
                port,
                max_model_len=settings.context,
                max_tokens=settings.max_response_tokens,
                kv_bytes=settings.server_kv_bytes,
                max_num_seqs=settings.server_max_sequences,
                block_size=settings.server_block_size,
                seed=plan.seed + index,
                extra=settings.server_arguments,
            )
            log_file = plan.directory / f"vllm-{index}.log"
            environment = server.base_environment(settings.cores)
            started.append(server.ServerProcess(command, port, log_file, environment))
        yield [process.address for process in started]
    finally:
        for process in started:
            process.stop()


def give_up_starting() -> None:
    """End the servers, so that whoever waits for them to come up hears of it now."""
    for process in list(server.PROCESSES.values()):
        process.stop()


@contextmanager
def weights_files(count: int) -> Iterator[list[str]]:
    """Paths for the weights' way to the servers, in memory where the system allows; removed by their owner, us."""
    folder = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    for left in folder.glob(f"{WEIGHTS_NAME}*"):  # of runs that were killed
        owner = left.name.removeprefix(WEIGHTS_NAME).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            left.unlink(missing_ok=True)
    paths = [folder / f"{WEIGHTS_NAME}{os.getpid()}-{index}.safetensors" for index in range(count)]
    try:
        yield [str(path) for path in paths]
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


@contextmanager
def ray_and_queue(plan: Plan, config: Any, environment: dict[str, str]) -> Iterator[None]:
    """Ray on this machine (or the cluster of `ray_kwargs.ray_init.address`) with verl's TransferQueue in it."""
    import ray
    import transfer_queue as tq

    folder = tempfile.mkdtemp(prefix="leyden-ray-")  # short: Ray puts sockets in it
    options: dict[str, Any] = {
        "runtime_env": {"env_vars": environment},
        "log_to_driver": False,
        "logging_level": "ERROR",
    }
    if plan.device == "cpu":
        options |= {
            "address": "local",
            # Logical: the actors take turns, they do not compute at once.
            "num_cpus": 8 + 4 * plan.settings.gpus,
            "include_dashboard": False,
            "object_store_memory": 256 << 20,
            "_temp_dir": folder,
        }
    given = dict(config.ray_kwargs.get("ray_init", {}))
    options |= {name: value for name, value in given.items() if value is not None and name != "runtime_env"}
    try:
        ray.init(**options)
        try:
            tq.init(config.transfer_queue)
            yield
        finally:
            tq.close()
            ray.shutdown()
    except BaseException:
        logs = Path(folder) / "session_latest" / "logs"
        if logs.is_dir():
            shutil.copytree(logs, plan.directory / "ray-logs", dirs_exist_ok=True, ignore_dangling_symlinks=True)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""Inside the vLLM server process: load the policy's weights from a file while the server lives.

vLLM's own weight-update API (``/start_weight_update``, ``/update_weights``, ``/finish_weight_update``) is given one more
transfer engine, ``file``: the trainer writes a safetensors file, the server reads it. The module is loaded by vLLM as its
``--worker-extension-cls``, which is how the engine gets registered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory


def retie_output_layer(model: Any) -> bool:
    """Renew the output layer of a model whose embeddings are tied; True if there was anything to do.

    On a CPU the output layer keeps a packed copy of its weights for the matrix product. New embeddings do not reach that
    copy: the server would answer 200 and sample from a mixture of old and new weights.
    """
    output = getattr(model, "lm_head", None)
    embeddings = getattr(getattr(model, "model", None), "embed_tokens", None)
    if output is None or embeddings is None or not getattr(model.config, "tie_word_embeddings", False):
        return False
    output.weight = embeddings.weight
    output.quant_method.process_weights_after_loading(output)
    return True


@dataclass
class FileInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing to agree on: both sides are on one machine."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Where the weights are: a safetensors file with Hugging Face parameter names."""

    path: str = ""


class FileTransferEngine(WeightTransferEngine):  # type: ignore[misc]
    """vLLM weight-transfer engine ``file``."""

    init_info_cls, update_info_cls = FileInitInfo, FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None: ...

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        from safetensors import safe_open

        def tensors() -> Iterator[tuple[str, Any]]:
            with safe_open(update_info.path, "pt") as file:
                for name in file.keys():  # noqa: SIM118 (no mapping)
                    yield name, file.get_tensor(name)

        self.model.load_weights(tensors())

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        retie_output_layer(self.model)

    def shutdown(self) -> None: ...


if "file" not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine("file", FileTransferEngine)


class PolicyWorker:
    """vLLM worker extension; carries no method of its own, loading it registers the engine."""

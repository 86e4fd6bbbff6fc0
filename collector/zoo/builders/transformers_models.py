"""Models of transformers from their configuration classes, with random token ids or random images."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
import transformers
from torch import nn

from collector.vocabulary import Phase
from collector.zoo.builders.conditioning import (
    built_on,
    calibrate_batch_norms,
    own_loss,
    settle,
    silence_config,
    silence_modules,
    wake_dead_gains,
)
from collector.zoo.builders.outside_models import own_loss_or_mean_squares
from collector.zoo.spec import Built, MissingPackageError, is_cpu

#: Architectures whose decoder gets token ids of its own.
_ENCODER_DECODERS = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration", "M2M100ForConditionalGeneration")


def build_text(
    batch_size: int,
    phase: Phase,
    device: str,
    *,
    architecture: str,
    config: Mapping[str, Any],
    length: int,
    cpu_length: int,
) -> Built:
    """Build a text model in transformers' default sizes except `config`.

    As in PyTorch's runner there is no attention mask, and there are labels in both phases.
    """
    kind = getattr(transformers, architecture)
    configuration = kind.config_class(**config)
    configuration.use_cache = False
    silence_config(configuration)
    model = kind(configuration)
    silence_modules(model)
    shape = (batch_size, cpu_length if is_cpu(device) else length)
    return Built(model, (), _inputs(architecture, configuration, shape), own_loss)


def _inputs(architecture: str, config: Any, shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    inputs = {"input_ids": torch.randint(0, config.vocab_size, shape)}
    if "Bart" in architecture:
        # These models pool at the end-of-sequence token, so every row needs one.
        inputs["input_ids"][:, -1] = config.eos_token_id
    if architecture in _ENCODER_DECODERS:
        inputs["decoder_input_ids"] = torch.randint(0, config.vocab_size, shape)
    if architecture.endswith("ForSequenceClassification"):
        inputs["labels"] = torch.randint(0, config.num_labels, shape[:1])
    else:
        inputs["labels"] = torch.randint(0, config.vocab_size, shape)
    return inputs


_CLASSES = 1000
_SIDE = 224
_CALIBRATION_BATCH = 4


def build_vision(batch_size: int, phase: Phase, device: str, *, architecture: str, config: Mapping[str, Any]) -> Built:
    """Build a vision model in transformers' sizes except `config`, for ImageNet's classes, with labels in both phases."""
    kind = getattr(transformers, architecture)
    configuration = kind.config_class(num_labels=_CLASSES, **config)
    model = kind(configuration)
    silence_modules(model)
    wake_dead_gains(model)
    place = settle(model, device)
    calibrate_batch_norms(model, lambda: model(pixel_values=torch.randn(_CALIBRATION_BATCH, 3, _SIDE, _SIDE).to(place)))
    inputs = {
        "pixel_values": torch.randn(batch_size, 3, _SIDE, _SIDE),
        "labels": torch.randint(0, _CLASSES, (batch_size,)),
    }
    return Built(model, (), inputs, own_loss)


#: Tokens of a prompt that fill a cache in one call.
_PIECE = 128
#: The attributes with a cached layer's tensors: of attention, and of a state-space or linear attention layer.
_CACHED = ("keys", "values", "conv_states", "recurrent_states")


def build_prefill(batch_size: int, phase: Phase, device: str, **sizes: Any) -> Built:
    """Build the prefill of a prompt in one call: scores of the next token, and the cache. `sizes` are arguments of `_sized`.

    For training build the loss of all tokens, without a cache.
    """
    model, length = _sized(device, **sizes)
    ids = _tokens(model, batch_size, length)
    if phase is Phase.TRAINING:
        model.config.use_cache = False
        return Built(model, (), {"input_ids": ids, "labels": ids.clone()}, own_loss)
    return Built(Prefill(model), (ids,), {}, own_loss)


def build_decode(batch_size: int, phase: Phase, device: str, **sizes: Any) -> Built:
    """Build a decode step of one token a row, after a prompt that fills half of a static cache. `sizes` are for `_sized`."""
    model, length = _sized(device, **sizes)
    cache = _static_cache(model.config, 2 * length)
    prompt, token = _tokens(model, batch_size, length), _tokens(model, batch_size, 1)
    _fill(model, cache, prompt.to(model.device))
    return Built(DecodeStep(model, cache), (torch.tensor(length),), {"input_ids": token}, own_loss)


def _fill(model: Any, cache: Any, prompt: torch.Tensor) -> None:
    """Run a prompt through a model into its cache, in pieces: the activations of a whole prompt take up to 60 GB.

    A recurrent layer begins anew with each call of several tokens, so a model with such layers gets the whole prompt. If all
    layers are recurrent the end of the prompt is enough: the size of their state does not depend on the prompt.
    """
    pieces: Sequence[torch.Tensor] = prompt.split(_PIECE, dim=1)
    if _is_recurrent(model.config):
        pieces = [prompt] if _has_attention(model.config) else pieces[-1:]
    with torch.no_grad():
        for tokens in pieces:
            model(tokens, use_cache=True, logits_to_keep=1, **{_cache_name(model): cache})


def _sized(
    device: str,
    *,
    architecture: str,
    config: Mapping[str, Any],
    cpu_config: Mapping[str, Any],
    length: int,
    cpu_length: int,
) -> tuple[Any, int]:
    """Build the model for a device, smaller on a CPU, and return it with the length of its prompt."""
    if is_cpu(device):
        config, length = {**config, **cpu_config}, cpu_length
    return _model(architecture, config, device), length


def build_whisper_encoder(
    batch_size: int, phase: Phase, device: str, *, config: Mapping[str, Any], cpu_config: Mapping[str, Any]
) -> Built:
    """Build Whisper's encoder with the spectrum of 30 seconds of sound."""
    model = _model("WhisperModel", {**config, **cpu_config} if is_cpu(device) else config, device)
    frames = 2 * model.config.max_source_positions
    return Built(model.get_encoder(), (torch.randn(batch_size, model.config.num_mel_bins, frames),), {}, own_loss)


def build_whisper_decode(
    batch_size: int, phase: Phase, device: str, *, config: Mapping[str, Any], cpu_config: Mapping[str, Any], length: int
) -> Built:
    """Build Whisper's decode step of one token a row after `length` others, with the encoder's keys and values in the cache."""
    config = {**config, **cpu_config} if is_cpu(device) else config
    # This model has no encoder, and transformers makes a cache with as many layers as the encoder has.
    model = _model("WhisperForCausalLM", {**config, "encoder_layers": config["decoder_layers"]}, device)
    lengths = model.config.max_target_positions, model.config.max_source_positions
    cache = transformers.EncoderDecoderCache(*(_static_cache(model.config, length) for length in lengths))
    heard = torch.randn(batch_size, lengths[1], model.config.d_model)
    prompt, token = _tokens(model, batch_size, length), _tokens(model, batch_size, 1)
    with torch.no_grad():
        prompt, given = prompt.to(model.device), heard.to(model.device)
        model(prompt, encoder_outputs=(given,), use_cache=True, **{_cache_name(model): cache})
    inputs = {"input_ids": token, "encoder_outputs": (heard,)}
    return Built(DecodeStep(model, cache), (torch.tensor(length),), inputs, own_loss)


class Prefill(nn.Module):  # type: ignore[misc]
    """A module that runs a prompt through a model and returns the next token's scores and the cache's tensors by layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self._cache_name = model, _cache_name(model)
        # transformers' own choice of cache drops keys before a sliding window, and computes the window's length on the host.
        self._make_cache: Callable[[], Any] | None = None if _is_recurrent(model.config) else transformers.DynamicCache

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the scores after the last token, and keys, values and states by layer."""
        cache = {self._cache_name: self._make_cache()} if self._make_cache else {}
        made = self.model(input_ids, use_cache=True, logits_to_keep=1, **cache)
        outputs = {"logits": made.logits}
        for index, layer in enumerate(made[self._cache_name].layers):
            for name in _CACHED:
                held = getattr(layer, name, None)
                for part, tensor in enumerate(held.values() if isinstance(held, dict) else (held,)):
                    if tensor is not None:
                        outputs[f"{name}_{index}_{part}"] = tensor
        return outputs


class DecodeStep(nn.Module):  # type: ignore[misc]
    """A decode step: one token a row through a model with a filled cache, at a position that is an input.

    The cache's tensors are buffers of this module: they move and change their dtype with it, a comparison starts from the
    filled cache, and the entries that the step wrote are compared as outputs. Every call writes at its given position, so that
    a step can be repeated. Recurrent states and windows of keys move on, as they do from token to token.
    """

    def __init__(self, model: nn.Module, cache: Any) -> None:
        super().__init__()
        self.model, self._cache_name, self._cache = model, _cache_name(model), cache
        #: The layers that a step writes; an encoder's keys and values stay as they are.
        self._written = getattr(cache, "self_attention_cache", cache).layers
        self._layers = self._written + (cache.cross_attention_cache.layers if hasattr(cache, "is_updated") else [])
        if not all(hasattr(layer, "cumulative_length") or hasattr(layer, "recurrent_states") for layer in self._layers):
            raise MissingPackageError(
                f"transformers {transformers.__version__} has other caches: pip install -U transformers"
            )
        #: The lengths that transformers counts on the host: any value above the window means that the window is full.
        self._counted = [getattr(layer, "cumulative_length_int", None) for layer in self._written]
        #: A state-space model takes no positions.
        self._has_positions = any(hasattr(layer, "cumulative_length") for layer in self._written)
        for name, holder, key in self._held():
            self.register_buffer(name, holder[key])
        self._tie()

    def forward(self, position: torch.Tensor, **inputs: Any) -> torch.Tensor:
        """Return the scores of the token after the given one, which is at `position`."""
        for layer, counted in zip(self._written, self._counted, strict=True):
            if counted is not None:
                layer.cumulative_length_int = counted
            elif hasattr(layer, "cumulative_length"):
                layer.cumulative_length.copy_(position)
        if self._has_positions:
            inputs["position_ids"] = position.expand(inputs["input_ids"].shape)
        logits: torch.Tensor = self.model(**inputs, use_cache=True, **{self._cache_name: self._cache}).logits
        return logits

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> DecodeStep:
        super()._apply(fn, recurse)
        self._tie()
        return self

    def _tie(self) -> None:
        """Put the buffers into the cache again after they were moved or cast."""
        for name, holder, key in self._held():
            holder[key] = buffer = self.get_buffer(name)
            # As in transformers: else a changed input keeps cudagraphs from being recorded.
            torch._dynamo.mark_static_address(buffer)
        for layer in self._layers:
            # transformers makes the positions of its writes on this device.
            if isinstance(getattr(layer, "keys", None), torch.Tensor):
                layer.device = layer.keys.device

    def _held(self) -> Iterator[tuple[str, MutableMapping[Any, Any], Any]]:
        """Yield a buffer's name for every tensor of the cache, with the mapping and the key that hold it."""
        for index, layer in enumerate(self._layers):
            for key, value in list(vars(layer).items()):
                if isinstance(value, torch.Tensor):
                    yield f"cache_{index}_{key}", vars(layer), key
                elif isinstance(value, dict):
                    for part, held in list(value.items()):
                        if isinstance(held, torch.Tensor):
                            yield f"cache_{index}_{key}_{part}", value, part


def _model(architecture: str, config: Mapping[str, Any], device: str) -> Any:
    """Build a model on its device, where its weights are drawn, in eval mode."""
    kind = _of_transformers(architecture)
    configuration = kind.config_class(**config)
    silence_config(configuration)
    with built_on(device):
        model = kind(configuration)
    silence_modules(model)
    return model.eval()


def _of_transformers(name: str) -> Any:
    """Return a class of transformers. Raises `MissingPackageError` if the installed version has no such class."""
    kind = getattr(transformers, name, None)
    if kind is None:
        raise MissingPackageError(f"transformers {transformers.__version__} has no {name}: pip install -U transformers")
    return kind


def _static_cache(config: Any, length: int) -> Any:
    """Return a static cache for `length` tokens.

    transformers' layer for a sliding window counts on the host, and so compiles again for each position until the window is
    full. A window that never fills is replaced by an ordinary layer, whose mask has the same effect.
    """
    cache = transformers.StaticCache(config=config, max_cache_len=length)
    for index, layer in enumerate(cache.layers):
        if getattr(layer, "is_sliding", False) and layer.max_cache_len == length:
            cache.layers[index] = _of_transformers("StaticLayer")(max_cache_len=length)
    return cache


def _cache_name(model: nn.Module) -> str:
    """Return the name of a model's parameter for the cache.

    It is `cache` since transformers 5.24, and before that `cache_params` (state-space models) or `past_key_values`.
    """
    named = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "cache_params") if name in named), "past_key_values")


#: The types of layers that are attention.
_ATTENTION = frozenset({"full_attention", "sliding_attention"})


def _is_recurrent(config: Any) -> bool:
    """Return whether some layer is not attention, so that the cache must know the configuration."""
    return not _ATTENTION.issuperset(getattr(config, "layer_types", None) or ())


def _has_attention(config: Any) -> bool:
    """Return whether some layer of a recurrent model is attention."""
    return not _ATTENTION.isdisjoint(config.layer_types)


def _tokens(model: Any, *shape: int) -> torch.Tensor:
    return torch.randint(0, model.config.vocab_size, shape)


def build_sam_encoder(batch_size: int, phase: Phase, device: str) -> Built:
    """Build SAM's ViT-B encoder at 1024x1024 pixels: the defaults of `SamVisionConfig` are its published sizes."""
    small: dict[str, Any] = {
        "hidden_size": 32,
        "output_channels": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "window_size": 2,
        "global_attn_indexes": [1],
        "mlp_dim": 64,
    }
    config = transformers.SamVisionConfig(**(small if is_cpu(device) else {}))
    images = torch.randn(batch_size, 3, config.image_size, config.image_size)
    return Built(_Encoder(transformers.SamVisionModel(config)), (images,), {}, own_loss_or_mean_squares)


class _Encoder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model(pixel_values=images).last_hidden_state
        return features

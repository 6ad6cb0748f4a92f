"""Attention as matrix products and a softmax, so that its parts can be quantized one by one.

PyTorch offers attention as one function whose inside cannot be intercepted. These replacements compute the
same in evaluation mode; the scale of the queries is folded into their projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparsemod.errors import UnsupportedOperatorError

__all__ = ["DECOMPOSED", "multi_head_attention", "scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Do what `torch.nn.functional.scaled_dot_product_attention` does without dropout.

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, Ev).
        attn_mask: Bool (True takes part) or additive float, broadcasts to (..., L, S).
        dropout_p: Ignored.
        is_causal: Mask the future.
        scale: Factor of the scores, 1 / sqrt(E) by default.
        enable_gqa: Refused: grouped queries are not built.

    Raises:
        UnsupportedOperatorError: With `enable_gqa`.
    """
    if enable_gqa:
        raise UnsupportedOperatorError("scaled_dot_product_attention with enable_gqa cannot be quantized")
    scores = torch.matmul(query, key.transpose(-2, -1)) * (scale or 1 / math.sqrt(query.shape[-1]))
    if is_causal:
        future = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    if attn_mask is not None:
        attn_mask = _additive(~attn_mask if attn_mask.dtype == torch.bool else attn_mask)
    weights = torch.softmax(_masked(scores, attn_mask), -1)
    if attn_mask is not None:  # a query that may look at nothing gives zeros, as PyTorch's kernels have it
        weights = weights.masked_fill((attn_mask == -math.inf).all(-1, keepdim=True), 0.0)
    return torch.matmul(weights, value)


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = False,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Do what `torch.nn.functional.multi_head_attention_forward` does without dropout; its arguments, too.

    Raises:
        UnsupportedOperatorError: With `add_bias_kv`, `add_zero_attn` or given keys and values.
    """
    if any(tensor is not None for tensor in (bias_k, bias_v, static_k, static_v)) or add_zero_attn:
        raise UnsupportedOperatorError(
            "MultiheadAttention with add_bias_kv or add_zero_attn cannot be quantized"
        )
    single = query.dim() == 2
    q, k, v = (x.unsqueeze(1) if single else x for x in (query, key, value))
    output, weights = _batched_attention(
        (q, k, v),
        num_heads,
        _projections(in_proj_weight, in_proj_bias, (q_proj_weight, k_proj_weight, v_proj_weight), num_heads),
        (out_proj_weight, out_proj_bias),
        _mask(attn_mask, key_padding_mask, q.shape[1], num_heads),
    )
    output = output.squeeze(1) if single else output
    if not need_weights:
        return output, None
    weights = weights.reshape(-1, num_heads, *weights.shape[1:])
    weights = weights.mean(1) if average_attn_weights else weights
    return output, weights.squeeze(0) if single else weights


def _batched_attention(
    inputs: tuple[Tensor, Tensor, Tensor],
    heads: int,
    projections: tuple[tuple[Tensor, Tensor | None], ...],
    out: tuple[Tensor, Tensor | None],
    mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    length, batch, width = inputs[0].shape
    q, k, v = (
        F.linear(x, *p).reshape(x.shape[0], batch * heads, -1).transpose(0, 1)
        for x, p in zip(inputs, projections, strict=True)
    )
    weights = torch.softmax(_masked(torch.bmm(q, k.transpose(1, 2)), mask), -1)
    joined = torch.bmm(weights, v).transpose(0, 1).reshape(length, batch, width)
    return F.linear(joined, *out), weights


def _projections(
    packed: Tensor | None, bias: Tensor | None, separate: tuple[Tensor | None, ...], heads: int
) -> tuple[tuple[Tensor, Tensor | None], ...]:
    """Return (weight, bias) of query, key and value; the query's scaled by 1 / sqrt(head width)."""
    weights = [w for w in separate if w is not None] if packed is None else list(packed.chunk(3))
    biases: list[Tensor | None] = [None] * 3 if bias is None else list(bias.chunk(3))
    factor = 1 / math.sqrt(weights[0].shape[0] // heads)
    first = biases[0]
    scaled = (weights[0] * factor, None if first is None else first * factor)
    return scaled, (weights[1], biases[1]), (weights[2], biases[2])


def _mask(attn: Tensor | None, padding: Tensor | None, batch: int, heads: int) -> Tensor | None:
    """Join both masks into one additive mask that broadcasts to (batch * heads, L, S)."""
    masks = []
    if attn is not None:
        masks.append(_additive(attn))
    if padding is not None:
        rows = _additive(padding).reshape(batch, 1, 1, -1).expand(batch, heads, 1, -1)
        masks.append(rows.reshape(batch * heads, 1, -1))
    return sum(masks[1:], masks[0]) if masks else None


def _additive(mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=mask.device).masked_fill(mask, -math.inf)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Add a mask; its infinite elements are filled in, since no integer grid holds them."""
    if mask is None:
        return scores
    hidden = mask == -math.inf
    finite = mask.masked_fill(hidden, 0.0)
    if bool((finite != 0).any()):
        scores = scores + finite
    return scores.masked_fill(hidden, -math.inf)


DECOMPOSED: dict[str, Callable[..., Any]] = {
    "multi_head_attention_forward": multi_head_attention,
    "scaled_dot_product_attention": scaled_dot_product_attention,
}

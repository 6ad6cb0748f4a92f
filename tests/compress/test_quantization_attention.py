"""Attention recomposed from its parts."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparsemod.compress.attention import multi_head_attention, scaled_dot_product_attention
from sparsemod.compress.quantization import quantize
from sparsemod.errors import UnsupportedOperatorError


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return torch.randn(2, 3, 5, 4), torch.randn(2, 3, 6, 4), torch.randn(2, 3, 6, 7)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": 0.3},
        {"is_causal": True},
        {"attn_mask": torch.arange(30).view(5, 6) % 3 > 0},
        {"attn_mask": torch.arange(30).view(5, 6) > 5},  # the first query may look at nothing
        {"attn_mask": torch.linspace(-2, 2, 90).view(3, 5, 6)},
    ],
)
def test_scaled_dot_product_equals_torch(qkv, options):
    expected = F.scaled_dot_product_attention(*qkv, **options)
    assert torch.allclose(scaled_dot_product_attention(*qkv, **options), expected, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("masks", [{}, {"key_padding_mask": True}, {"attn_mask": True}])
@pytest.mark.parametrize("separate", [False, True])
def test_multi_head_equals_torch(need_weights, average, masks, separate):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, **({"kdim": 6, "vdim": 5} if separate else {})).eval()
    query, key, value = torch.randn(4, 3, 8), torch.randn(5, 3, 8), torch.randn(5, 3, 8)
    if separate:
        key, value = key[..., :6], value[..., :5]
    shape = {"key_padding_mask": (3, 5), "attn_mask": (4, 5)}
    options = {name: torch.rand(shape[name]) > 0.7 for name in masks}
    options |= {"need_weights": need_weights, "average_attn_weights": average}
    expected, weights = module(query, key, value, **options)
    names = [f"{letter}_proj_weight" for letter in "qkv"] if separate else []
    separated = {name: getattr(module, name) for name in names}
    result, made = multi_head_attention(
        query, key, value, 8, 2, module.in_proj_weight, module.in_proj_bias, None, None, False,
        0.0, module.out_proj.weight, module.out_proj.bias, use_separate_proj_weight=separate,
        **separated, **options,
    )  # fmt: skip
    assert torch.allclose(result, expected, atol=1e-5, equal_nan=True)
    assert (made is None) == (weights is None)
    if weights is not None:
        assert torch.allclose(made, weights, atol=1e-5, equal_nan=True)


def test_masked_attention_is_quantized():
    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]

    torch.manual_seed(0)
    net, x = Causal(), torch.randn(64, 6, 8)
    quantized = quantize(net, "post", [x])
    assert (quantized(x) - net(x)).abs().max() < 0.05
    changed = x.clone()
    changed[:, -1] = 0
    assert torch.equal(quantized(changed)[:, :-1], quantized(x)[:, :-1])
    assert [w.op for w in quantized.weights] == ["linear"] * 4


def test_unusual_attention_is_refused():
    module = nn.MultiheadAttention(8, 2, add_bias_kv=True)
    net = nn.Module()
    net.attention = module
    net.forward = lambda x: module(x, x, x)[0]
    with pytest.raises(UnsupportedOperatorError, match="add_bias_kv"):
        quantize(net, "post", [torch.randn(4, 3, 8)])

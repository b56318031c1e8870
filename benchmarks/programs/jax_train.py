"""A small transformer trained by JAX: many fused kernels of XLA."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
from common import batch, loop

WIDTH, HEADS, LAYERS, WORDS, BATCH, TOKENS = 768, 12, 6, 8192, batch(16), 512


def weights(key):
    keys = iter(jax.random.split(key, 1 + 4 * LAYERS))

    def drawn(*shape):
        return jax.random.normal(next(keys), shape, jnp.bfloat16) * 0.02

    shapes = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
    layers = [{name: drawn(a * WIDTH, b * WIDTH) for name, (a, b) in shapes.items()} for _ in range(LAYERS)]
    return {"words": drawn(WORDS, WIDTH), "layers": layers}


def norm(x):
    x = x.astype(jnp.float32)
    scaled = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return scaled.astype(jnp.bfloat16)


def forward(net, tokens):
    x, mask = net["words"][tokens], jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
    for layer in net["layers"]:
        q, k, v = jnp.split((norm(x) @ layer["qkv"]).reshape(BATCH, TOKENS, HEADS, 3 * WIDTH // HEADS), 3, -1)
        scores = jnp.where(mask, jnp.einsum("bthd,bshd->bhts", q, k) / 8, -1e9).astype(jnp.float32)
        attended = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores).astype(jnp.bfloat16), v)
        x = x + attended.reshape(BATCH, TOKENS, WIDTH) @ layer["out"]
        x = x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]
    return norm(x) @ net["words"].T


def loss(net, tokens):
    logits = forward(net, tokens[:, :-1]).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1).mean()


@jax.jit
def train(net, momentum, tokens):
    gradient = jax.grad(loss)(net, tokens)
    momentum = jax.tree.map(lambda a, b: 0.9 * a + b, momentum, gradient)
    return jax.tree.map(lambda a, b: a - 0.01 * b, net, momentum), momentum


net = weights(jax.random.key(0))
state = [net, jax.tree.map(jnp.zeros_like, net)]
tokens = jax.random.randint(jax.random.key(1), (BATCH, TOKENS + 1), 0, WORDS)


def step():
    state[:] = train(*state, tokens)


loop(step, lambda: jax.block_until_ready(state))

"""A JAX program."""

import jax
import jax.numpy as jnp
from common import loop, seconds

keys = jax.random.split(jax.random.PRNGKey(0), 9)
weights = [jax.random.normal(key, (4096, 4096), jnp.bfloat16) * 0.02 for key in keys[:8]]
x = jax.random.normal(keys[8], (4096, 4096), jnp.bfloat16)


@jax.jit
def layers(weights, x):
    for weight in weights:
        x = jax.nn.gelu(x @ weight)
        x = x / (1e-3 + jnp.std(x, axis=-1, keepdims=True))
    return x


state = [x]


def step():
    state[0] = layers(weights, state[0])


loop(step, lambda: state[0].block_until_ready(), seconds())  # noqa: PLW0108 (the state changes)

"""Tables as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from jouletrace.errors import NotPossibleError
from jouletrace.run.estimate import Estimate


def to_pandas(table: pa.Table) -> Any:
    """A table as a DataFrame.

    Raises:
        NotPossibleError: If pandas isn't installed.
    """
    try:
        return table.to_pandas()
    except ModuleNotFoundError:
        raise NotPossibleError("to_pandas needs pandas: pip install pandas") from None


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows of one kind as a DataFrame: of a figure NAME the columns NAME, NAME_low and NAME_high; codes in one text.

    Raises:
        NotPossibleError: If pandas isn't installed.
    """
    flat: list[dict[str, Any]] = []
    for row in rows:
        flat.append({})
        for name, value in row.items():
            if isinstance(value, Estimate):
                flat[-1] |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
            else:
                flat[-1][name] = ",".join(value) if isinstance(value, tuple) else value
    table = pa.Table.from_pylist(flat)
    empty = pa.types.is_null  # of a column without a value, which pandas would take for objects
    return to_pandas(table.cast(pa.schema([f.with_type(pa.float64()) if empty(f.type) else f for f in table.schema])))

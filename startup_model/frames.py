"""Tables for pandas, which is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from startup_model.errors import MISSING, ConfigError

if TYPE_CHECKING:
    import pandas as pd


def data_frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Columns as a DataFrame. Raises ConfigError when pandas is not installed."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise ConfigError("pandas", MISSING, "must be installed", "pip install 'startup-model[notebook]'") from None
    return pd.DataFrame(columns)

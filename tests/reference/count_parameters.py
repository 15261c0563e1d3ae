"""Counts the parameters of the models in parameter_counts.json with the model classes of the `transformers` library.

    python tests/reference/count_parameters.py            # counts again and rewrites the file
    python tests/reference/count_parameters.py --check    # compares, changes nothing; exit status 1 when a count differs

Needs torch and transformers; the models are built on the meta device, so that they take no memory. Tied parameters count once.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import warnings
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("parameter_counts.json")
COMMAND = "python tests/reference/count_parameters.py"
SAME_CLASS = {"kimi_k2": "deepseek_v3"}
"""Types that `transformers` lacks -> the type whose class has the same parameters."""
NOT_STRUCTURE = ("model_type", "architectures", "quantization_config", "torch_dtype", "dtype")


def count(config: dict[str, Any]) -> int:
    """Parameters of the model that ``config`` describes."""
    import torch
    import transformers

    kept = {name: value for name, value in copy.deepcopy(config).items() if name not in NOT_STRUCTURE}
    model_type = config["model_type"]
    made = transformers.AutoConfig.for_model(SAME_CLASS.get(model_type, model_type), **kept)
    sees = "vision_config" in config
    auto = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(made)
    model.tie_weights()
    return sum(parameter.numel() for parameter in model.parameters())


def main() -> int:
    """Count all records; rewrite the file or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file and leave it as it is")
    check = parser.parse_args().check
    import torch
    import transformers

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    document = json.loads(FILE.read_text(encoding="utf-8"))
    different = 0
    for record in document["records"]:
        counted = count(record["config"])
        if counted != record.get("parameters"):
            different += 1
            print(f"{record['id']}: {record.get('parameters')} in the file, {counted} counted")
        record["parameters"] = counted
    print(f"{len(document['records'])} records, {different} differ")
    if check:
        return 1 if different else 0
    document["origin"] = (
        f"counted on the meta device by `{COMMAND}` with transformers {transformers.__version__}, torch {torch.__version__}"
    )
    lines = ",\n  ".join(json.dumps(record, separators=(",", ":")) for record in document["records"])
    text = f'{{\n "origin": {json.dumps(document["origin"])},\n "records": [\n  {lines}\n ]\n}}\n'
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

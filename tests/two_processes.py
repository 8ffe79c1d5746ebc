"""The run `UPDATE` of the toy task in this process's share of a launch: `torchrun ... two_processes.py MODEL OUT`."""

import json
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from test_step_grpo import UPDATE, trainer

model, out = Path(sys.argv[1]), Path(sys.argv[2])
world = PartialState(cpu=True).num_processes
instance = trainer(model, out.with_suffix(""), settings={"episodes_per_device": 48 // world}, **UPDATE)
instance.train()
if instance.accelerator.is_main_process:
    torch.save(instance.accelerator.unwrap_model(instance.model).state_dict(), out)
    rewards = [row["reward"] for row in instance.state.log_history if "reward" in row]
    out.with_suffix(".json").write_text(json.dumps({"world": world, "reward": rewards}))

"""Writes `optimizers.json` and `schedules.json`: torch's trajectories, for the test `../golden.rs`.

Run it with a Python that has torch:  python3 make.py
"""

import json
import math
from pathlib import Path

import torch

HERE = Path(__file__).parent
STEPS = 20
# The steps with kept values, from 1.
KEPT = [1, 2, 3, 5, 8, 12, 16, 20]
SHAPES = [[2, 3], [1], [5], []]

# Every option at least once with a value other than its default. An empty set is the defaults.
CASES = {
    "SGD": [
        {},
        {"lr": 0.1},
        {"lr": 0.05, "momentum": 0.9},
        {"lr": 0.05, "momentum": 0.9, "dampening": 0.3},
        {"lr": 0.05, "momentum": 0.8, "nesterov": True},
        {"lr": 0.1, "weight_decay": 0.05},
        {"lr": 0.02, "momentum": 0.7, "weight_decay": 0.1, "nesterov": True},
        {"lr": 0.01, "maximize": True},
        {"lr": 0.01, "momentum": 0.5, "weight_decay": 0.1, "maximize": True},
    ],
    "Adam": [
        {},
        {"lr": 0.1},
        {"lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-3},
        {"lr": 0.05, "betas": [0.4, 0.6]},
        {"lr": 0.05, "weight_decay": 0.1},
        {"lr": 0.1, "betas": [0.7, 0.6], "amsgrad": True},
        {"lr": 0.02, "weight_decay": 0.2, "amsgrad": True, "maximize": True},
    ],
    "AdamW": [
        {},
        {"lr": 0.1, "weight_decay": 0.3},
        {"lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-3},
        {"lr": 0.05, "weight_decay": 0.0},
        {"lr": 0.1, "betas": [0.7, 0.6], "amsgrad": True},
        {"lr": 0.02, "weight_decay": 0.2, "maximize": True},
    ],
    "Adamax": [
        {},
        {"lr": 0.1},
        {"lr": 0.05, "betas": [0.7, 0.8], "eps": 1e-3},
        {"lr": 0.05, "weight_decay": 0.1},
        {"lr": 0.02, "weight_decay": 0.1, "maximize": True},
    ],
    "Adagrad": [
        {},
        {"lr": 0.5},
        {"lr": 0.3, "lr_decay": 0.2},
        {"lr": 0.3, "initial_accumulator_value": 0.5, "eps": 1e-3},
        {"lr": 0.3, "weight_decay": 0.1},
        {"lr": 0.1, "lr_decay": 0.1, "maximize": True},
    ],
    "Adadelta": [
        {},
        {"lr": 5.0, "rho": 0.7},
        {"lr": 2.0, "eps": 1e-3},
        {"lr": 3.0, "eps": 1e-4, "weight_decay": 0.2},
        {"lr": 3.0, "eps": 1e-4, "maximize": True},
    ],
    "RMSprop": [
        {},
        {"lr": 0.05, "alpha": 0.8, "eps": 1e-3},
        {"lr": 0.01, "alpha": 0.9, "momentum": 0.6},
        {"lr": 0.01, "alpha": 0.9, "eps": 1e-2, "centered": True},
        {"lr": 0.01, "alpha": 0.9, "eps": 1e-2, "momentum": 0.5, "centered": True},
        {"lr": 0.02, "weight_decay": 0.1},
        {"lr": 0.01, "alpha": 0.8, "momentum": 0.3, "weight_decay": 0.1, "maximize": True},
    ],
    "Rprop": [
        {},
        {"lr": 0.1},
        {"lr": 0.2, "etas": [0.3, 1.7]},
        {"lr": 0.1, "step_sizes": [0.05, 0.2]},
        {"lr": 0.05, "maximize": True},
    ],
}


def starts(dtype):
    """Parameters spread over both signs, none close to where its gradient vanishes."""
    found = []
    for number, shape in enumerate(SHAPES):
        count = math.prod(shape)
        values = [((7 * index + 3 * number) % 11 - 5) / 4 + 0.15 for index in range(count)]
        tensor = torch.tensor(values, dtype=dtype).reshape(shape)
        found.append(torch.nn.Parameter(tensor))
    return found


def gradient(value):
    """Of a quadratic with a dent. Only operations that every machine rounds alike."""
    return (value * 1.5 + 0.25) - value / (value * value + 0.5)


def has_gradient(parameter, step):
    """Parameter 1 skips every third step, parameter 2 only starts with the fourth one."""
    if parameter == 1:
        return step % 3 != 2
    if parameter == 2:
        return step >= 4
    return True


def numbers(tensor):
    return tensor.detach().double().flatten().tolist()


def run(name, options, dtype):
    parameters = starts(dtype)
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    if name == "SGD":
        given.setdefault("lr", 1e-3)
    # One tensor at a time on every device.
    optimizer = getattr(torch.optim, name)(parameters, foreach=False, **given)
    values = []
    for step in range(1, STEPS + 1):
        for number, parameter in enumerate(parameters):
            parameter.grad = gradient(parameter.detach()) if has_gradient(number, step) else None
        optimizer.step()
        if step in KEPT:
            values.append([numbers(parameter) for parameter in parameters])
    slots = []
    for parameter in parameters:
        state = optimizer.state[parameter]
        tensors = {key: numbers(value) for key, value in state.items() if torch.is_tensor(value) and key != "step"}
        slots.append(tensors)
    return {
        "algorithm": name.lower(),
        "options": options,
        "dtype": str(dtype).removeprefix("torch."),
        "values": values,
        "slots": slots,
    }


def defaults(name):
    """Torch's own defaults, where it has them."""
    given = {"lr": 1e-3} if name == "SGD" else {}
    return getattr(torch.optim, name)(starts(torch.float32), **given).defaults


def optimizers():
    cases = []
    for name, sets in CASES.items():
        for options in sets:
            for dtype in (torch.float32, torch.float64):
                cases.append(run(name, options, dtype))
    return {
        "torch": torch.__version__,
        "shapes": SHAPES,
        "steps": STEPS,
        "kept": KEPT,
        "start": [numbers(parameter) for parameter in starts(torch.float64)],
        "defaults": {name.lower(): defaults(name) for name in CASES},
        "cases": cases,
    }


BASE = 0.3
SCHEDULES = [
    ("step_lr", "StepLR", {"step_size": 4, "gamma": 0.1}),
    ("step_lr", "StepLR", {"step_size": 7, "gamma": 0.6}),
    ("cosine_annealing_lr", "CosineAnnealingLR", {"T_max": 12, "eta_min": 0.0}),
    ("cosine_annealing_lr", "CosineAnnealingLR", {"T_max": 25, "eta_min": 0.02}),
    ("linear_lr", "LinearLR", {}),
    ("linear_lr", "LinearLR", {"start_factor": 0.1, "end_factor": 0.8, "total_iters": 13}),
    ("linear_lr", "LinearLR", {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 20}),
    ("one_cycle_lr", "OneCycleLR", {"max_lr": 0.5, "total_steps": 40}),
    ("one_cycle_lr", "OneCycleLR", {"max_lr": 0.5, "total_steps": 31, "pct_start": 0.45, "anneal_strategy": "linear"}),
    ("one_cycle_lr", "OneCycleLR", {"max_lr": 0.2, "total_steps": 33, "div_factor": 10.0, "final_div_factor": 50.0}),
    ("one_cycle_lr", "OneCycleLR", {"max_lr": 0.2, "total_steps": 30, "pct_start": 0.4, "three_phase": True}),
]
WARM_UP = {"start_factor": 0.05, "end_factor": 1.0, "total_iters": 6}


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE, momentum=0.9)


def curve(optimizer, scheduler, steps):
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


# Options with other names in Rust.
RENAMED = {"T_max": "t_max", "anneal_strategy": "anneal"}


def renamed(options):
    return {RENAMED.get(key, key): value for key, value in options.items()}


def schedules():
    cases = []
    for name, torch_name, options in SCHEDULES:
        optimizer = sgd()
        scheduler = getattr(torch.optim.lr_scheduler, torch_name)(optimizer, **options)
        # A cycle ends; the other schedules do not.
        rates = curve(optimizer, scheduler, options.get("total_steps", 40))
        cases.append({"schedule": name, "options": renamed(options), "rates": rates})
    for name, torch_name, options in [SCHEDULES[0], SCHEDULES[2]]:
        optimizer = sgd()
        first = torch.optim.lr_scheduler.LinearLR(optimizer, **WARM_UP)
        then = getattr(torch.optim.lr_scheduler, torch_name)(optimizer, **options)
        scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [first, then], [WARM_UP["total_iters"]])
        case = {"schedule": "warm_up." + name, "options": {"first": WARM_UP, "then": renamed(options)}}
        cases.append({**case, "rates": curve(optimizer, scheduler, 40)})
    return {"torch": torch.__version__, "base": BASE, "cases": cases}


def write(name, content):
    lines = json.dumps(content, default=str).replace('{"algorithm"', '\n{"algorithm"')
    (HERE / name).write_text(lines.replace('{"schedule"', '\n{"schedule"') + "\n")


if __name__ == "__main__":
    write("optimizers.json", optimizers())
    write("schedules.json", schedules())

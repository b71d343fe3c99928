"""How well the time of fused kernels is estimated: closed form, fit and graph network on kernels that none of them has seen.

build/venv/bin/python scripts/benchmark/fused_time.py [--folder DIR] [--models NAME,...] [--fusions N] [--repeats N] [--folds K] [--networks N] [--leave-out] [--check]

Needs dcc, the program `fused_table` (cmake --build build/release --target dcc dcrun_onednn fused_table) and build/venv. Every model is exported once and profiled --repeats times, in turn, each time
by a separate process with the same --fusions kernels drawn at random, each measured alone with its operands in a cache (`warm` in prof.json). A kernel's time is the least of the profiles' figures;
its repeat error is how far these are apart. The kernels are drawn into --folds parts by region: those with the same operators on as many elements are in one part, whatever else differs. Those of each
part that take 20 us or more are tested with estimators that learned from all other parts: the fit as dcc does it, the network by scripts/train_estimator.py in --seconds of processor time (for the
first --networks parts only, since it takes so long). So every kernel that all repeats have is tested once, by estimators that have not seen it. Models and profiles stay in --folder: what was
interrupted goes on with the next profile (of this build, on this machine). The table has the part of the tested kernels whose estimate is near enough: within 5 % or twice the kernel's own repeat
error, whichever is more; within 5 %; within 14 %, which is what DisCo has for 90 % of its kernels (arXiv 2209.12769); and the error that half and 90 % of them keep to. A second table has the fit by
model. The closed form is of operators as a step runs them, which is slower than alone.
--check: exits 1 unless at least 2000 kernels were tested and the fit, which is the default, is near enough for 90 % of them.
--leave-out: then once more, the kernels of one model after the other tested with estimators that learned from those of the other models.
"""

import argparse
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import time

import lab

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import train_estimator  # noqa: E402

DCC = os.path.join(ROOT, "build", "bin", "dcc")
SHORTEST_NS = 20_000
WANTED_KERNELS, WANTED_PART = 2000, 0.9
FEWEST_SAMPLES = 200  # of which src/cost/fitted_fused.h learns; of fewer the fit is the closed form
ESTIMATORS = (("closed form", "closed_ns"), ("fit", "fitted_ns"), ("network", "network_ns"))
_BERT = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 2048,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_GPT2, _MIXTRAL = lab.CONFIGS["gpt2"][0], lab.CONFIGS["mixtral"][0]
# Layers that are alike have the same kernels, and the steps of fewer are shorter.
_M = {**lab.CONFIGS["M"][0], "num_hidden_layers": 2, "vocab_size": 2048}


def _size(batch, seq, dtype):
    return "--batch", str(batch), "--seq", str(seq), "--dtype", dtype


# Configuration, options of export.py.
MODELS = {
    "gpt2": (_GPT2, _size(2, 192, "float32")),
    "gpt2-bf16": (_GPT2, _size(2, 192, "bfloat16")),
    "bert": (_BERT, _size(4, 96, "float32")),
    "mixtral-bf16": (_MIXTRAL, _size(2, 128, "bfloat16")),
    "M": (_M, _size(1, 256, "float32")),
    "M-short-bf16": (_M, _size(1, 96, "bfloat16")),
}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def exported(name, folder):
    path = os.path.join(folder, name + ".pt2")
    source, options = MODELS[name]
    if not os.path.exists(path):
        config = os.path.join(folder, name + ".config.json")
        with open(config, "w") as file:
            json.dump(source, file)
        run(sys.executable, os.path.join(ROOT, "scripts", "export.py"), "--hf-config", config, *options, "--headless", "--no-check", "-o", path)
    return path


def profiled(name, repeat, fusions, folder):
    path = os.path.join(folder, f"{name}-{fusions}.{repeat}.json")
    if os.path.exists(path):
        print(f"{path} is there", file=sys.stderr, flush=True)
    else:
        begin = time.monotonic()
        said = run(DCC, "profile", exported(name, folder), "--fusions", str(fusions), "-o", path)
        print(f"{time.monotonic() - begin:.0f} s: {said.strip()}", file=sys.stderr, flush=True)
    with open(path) as file:
        return json.load(file)


def merged(profiles):
    """One profile with each kernel's least times, and the repeat errors of those measured alone by key."""
    found, alone, errors = {}, {}, {}
    for profile in profiles:
        for row in profile["kernels"]:
            if row["fastest_ns"] > 0:
                found.setdefault((row["provider"], row["key"], row.get("space")), []).append(row)
        for row in profile["alone"]:
            alone.setdefault(row["key"], []).append(row)
    rows = [{**same[0], "median_ns": min(row["fastest_ns"] for row in same)} for same in found.values()]
    for key, same in alone.items():
        times = [row["warm"]["median_ns"] for row in same]
        if len(times) > 1:
            errors[key] = max(times) / min(times) - 1
    calm = [
        {**same[0], **{state: min((row[state] for row in same), key=lambda timing: timing["median_ns"]) for state in ("warm", "cold")}}
        for same in alone.values()
    ]
    return {**profiles[0], "kernels": rows, "alone": calm}, errors


def with_rows(profile, keep, path):
    with open(path, "w") as file:
        json.dump({**profile, "alone": [row for row in profile["alone"] if row["key"] in keep]}, file)
    return path


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0


def estimated(profile, test, train, folder, seconds):
    """Rows of the tested kernels with their estimates, by estimators that learned from `train`."""
    seen, unseen = (with_rows(profile, keys, os.path.join(folder, name)) for keys, name in ((train, "seen.json"), (test, "unseen.json")))
    if not seconds:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows = train_estimator.table(unseen, seen)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before.ru_utime
        print(f"fit to {len(train)} samples and its estimates of {len(test)}: {spent:.1f} s", file=sys.stderr, flush=True)
        return rows
    network = os.path.join(folder, "estimator.safetensors")
    names = train_estimator.primitives()
    samples = train_estimator.table(seen)
    trained, spent = train_estimator.train(samples, names, seconds)
    train_estimator.save(trained, names, network)
    print(f"network: {len(samples)} samples, {spent:.0f} s", flush=True)
    return train_estimator.table(unseen, seen, network)


def near_enough(row, field, errors):
    return abs(row[field] / row["median_ns"] - 1) <= max(0.05, 2 * errors[row["key"]])


def report(rows, errors):
    known = [errors[row["key"]] for row in rows]
    print(f"{len(rows)} unseen fused kernels: repeat error of half within {quantile(known, 0.5):.1%}, of 90 % within {quantile(known, 0.9):.1%}")
    print("| estimator | tested | max(5 %, 2 x repeat) | 5 % | 14 % | half within | 90 % within |\n|---|---|---|---|---|---|---|")
    for label, field in ESTIMATORS:
        tested = [row for row in rows if field in row]
        if not tested:
            continue
        off = [abs(row[field] / row["median_ns"] - 1) for row in tested]
        near = sum(near_enough(row, field, errors) for row in tested) / len(off)
        within = [sum(error <= limit for error in off) / len(off) for limit in (0.05, 0.14)]
        half, most = (quantile(off, part) for part in (0.5, 0.9))
        print(f"| {label} | {len(off)} | {near:.1%} | {within[0]:.1%} | {within[1]:.1%} | {half:.1%} | {most:.1%} |", flush=True)


def report_parts(rows, errors, parts):
    """The fit by model. `parts`: label and what tells whether a row is in it."""
    print("\n| of these | tested | fit near enough | half within | 90 % within |\n|---|---|---|---|---|")
    for label, has in parts:
        own = [row for row in rows if has(row)]
        if not own:
            continue
        off = [abs(row["fitted_ns"] / row["median_ns"] - 1) for row in own]
        near = sum(near_enough(row, "fitted_ns", errors) for row in own) / len(own)
        print(f"| {label} | {len(own)} | {near:.1%} | {quantile(off, 0.5):.1%} | {quantile(off, 0.9):.1%} |")


def region_of(key):
    """The operators of a kernel, in any order, and the shapes of its results."""
    results = re.findall(r"(\[[\d,]*\])\(", key[key.rindex(" -> ") :])
    return " ".join(sorted(re.findall(r"=([\w.]+)\(", key)) + results[:1])


def fold_of(key, folds):
    return int.from_bytes(hashlib.sha256(region_of(key).encode()).digest()[:8], "big") % folds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "fused_time"), help="keeps models and profiles")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--fusions", type=int, default=700, help="of each model")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--networks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=50)
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.repeats < 2:
        parser.error("--repeats: at least 2, whose distance is the repeat error of a kernel")
    os.makedirs(arguments.folder, exist_ok=True)
    models = arguments.models.split(",")
    begin = time.monotonic()
    for name in models:
        exported(name, arguments.folder)
    profiles = {name: [] for name in models}
    for repeat in range(arguments.repeats):
        for name in models:
            profiles[name].append(profiled(name, repeat, arguments.fusions, arguments.folder))
    print(f"profiles: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    profile, errors = merged([one for name in models for one in profiles[name]])
    keys = {name: {row["key"] for one in profiles[name] for row in one["alone"]} for name in models}
    fused = {row["key"]: row["warm"]["median_ns"] for row in profile["alone"]}
    long = {key for key, time_ns in fused.items() if time_ns >= SHORTEST_NS and key in errors}
    machine = profile["machine"]
    regions = len({region_of(key) for key in fused})
    print(
        f"{machine['cpu']}, {machine['threads']} thread; {len(fused)} fused kernels of {regions} regions, {len(long)} of 20 us or more and with a repeat error"
    )
    learned_from = len(fused) * (arguments.folds - 1) // arguments.folds
    if learned_from < FEWEST_SAMPLES:
        print(f"of {learned_from} kernels nothing is learned: the fit is the closed form; it takes {FEWEST_SAMPLES}")
    rows = []
    for fold in range(arguments.folds):
        part = {key for key in fused if fold_of(key, arguments.folds) == fold}
        rows += estimated(profile, part & long, set(fused) - part, arguments.folder, arguments.seconds if fold < arguments.networks else 0)
    report(rows, errors)
    report_parts(rows, errors, [(name, lambda row, name=name: row["key"] in keys[name]) for name in models])
    if arguments.leave_out:
        for name in models:
            own_rows = estimated(profile, keys[name] & long, set(fused) - keys[name], arguments.folder, 0)
            print(f"\n{name} left out: ", end="")
            report(own_rows, errors)
    print(f"{time.monotonic() - begin:.0f} s in all", file=sys.stderr)
    part = sum(near_enough(row, "fitted_ns", errors) for row in rows) / max(1, len(rows))
    holds = len(rows) >= WANTED_KERNELS and part >= WANTED_PART
    print(
        f"\n{len(rows)} of at least {WANTED_KERNELS} kernels, the default near enough for {part:.1%} of {WANTED_PART:.0%}: {'holds' if holds else 'does not hold'}"
    )
    sys.exit(bool(arguments.check and not holds))


if __name__ == "__main__":
    main()

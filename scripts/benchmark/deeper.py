"""A deeper model from an exported one: deeper(source, target, layers) repeats a layer of a headless Llama archive.

An export of fifty layers takes half a minute; this makes a thousand in ten seconds. A layer in the middle is copied, forward and
backward, with its parameters; each copy reads what the layer before it (backward: behind it) makes. So the result is
the graph that an export of so many layers would give, up to the names of values and what extra/dcc.json says of layers. The
archive stays headless.
"""

import json
import re
import zipfile


def deeper(source, target, layers):
    """Returns the number of graph nodes in `target`."""
    with zipfile.ZipFile(source) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    model_file = next(name for name in files if name.endswith("models/model.json"))
    weights_file = next(name for name in files if name.endswith("data/weights/model_weights_config.json"))
    growth = _Growth(json.loads(files[model_file]), layers)
    files[model_file] = json.dumps(growth.grown()).encode()
    files[weights_file] = json.dumps(growth.grown_weights(json.loads(files[weights_file]))).encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return len(growth.graph["nodes"])


def _layer_of(text):
    found = re.search(r"layers[._](\d+)", text)
    return int(found.group(1)) if found else None


def _renamed(thing, name):
    """A copy of an argument or a node in which every reference to a value is renamed."""
    if isinstance(thing, list):
        return [_renamed(one, name) for one in thing]
    if not isinstance(thing, dict):
        return thing
    if set(thing) == {"name"}:
        return {"name": name(thing["name"])}
    return {key: _renamed(value, name) for key, value in thing.items()}


class _Growth:
    def __init__(self, model, layers):
        self.model, self.graph, self.layers = model, model["graph_module"]["graph"], layers
        self.signature = model["graph_module"]["signature"]
        self.nodes = self.graph["nodes"]
        starts = {"f": {}, "b": {}}  # by phase and layer: index of its first node
        for index, node in enumerate(self.nodes):
            layer = _layer_of(" ".join(node["metadata"].values()))
            if layer is not None:
                starts[json.loads(node["metadata"]["custom"])["ph"]].setdefault(layer, index)
        self.depth = len(starts["f"])
        self.middle = self.depth // 2
        self.copies = layers - self.depth
        if self.copies < 0:
            raise ValueError(f"the source has {self.depth} layers already")
        near = range(self.middle - 1, self.middle + 3)
        forward = {k: slice(starts["f"][k], starts["f"][k + 1]) for k in near}
        backward = {k: slice(starts["b"][k], starts["b"][k - 1]) for k in near}
        self.parts = {"f": forward, "b": backward}
        self.places = {}  # by value: phase, layer, index of the output among those of the layer's phase
        self.made = {}  # the other way round
        for phase, slices in self.parts.items():
            targets = [[node["target"] for node in self.nodes[part]] for part in slices.values()]
            if any(one != targets[0] for one in targets):
                raise ValueError("the layers of the source are not alike")
            for layer, part in slices.items():
                names = [name for node in self.nodes[part] for name in _outputs(node)]
                for index, name in enumerate(names):
                    self.places[name] = (phase, layer, index)
                    self.made[phase, layer, index] = name

    # Layer `middle + c` is copy c of `middle`; layers behind them move on.

    def _moved(self, text):
        def number(match):
            layer = int(match.group(2))
            return match.group(1) + str(layer + self.copies if layer > self.middle else layer)

        return re.sub(r"(layers[._])(\d+)", number, text)

    def _copied(self, text, copy):
        return re.sub(rf"(layers[._]){self.middle}(?!\d)", rf"\g<1>{self.middle + copy}", text)

    def _value(self, name, copy):
        """The name in copy `copy` of the middle layer (0 to `copies`) of the value that the middle layer calls `name`."""
        phase, layer, index = self.places.get(name, (None, None, None))
        if layer is None:
            return self._copied(name, copy)
        wanted = copy + layer - self.middle  # copy that makes it; outside of 0 ... copies: a layer as it was
        if wanted < 0:
            return self.made[phase, self.middle + wanted, index]
        if wanted > self.copies:
            return self.made[phase, self.middle + wanted - self.copies, index]
        name = self.made[phase, self.middle, index]
        return name if wanted == 0 else f"{name}_copy_{wanted}"

    def _copy(self, node, copy):
        result = dict(node)
        result["name"] = node["name"] and self._value(node["name"], copy)
        for part in ("inputs", "outputs"):
            result[part] = _renamed(node[part], lambda name: self._value(name, copy))
        result["metadata"] = {key: self._copied(text, copy) for key, text in node["metadata"].items()}
        return result

    def _behind(self, node):
        """The layer behind the copies reads the last of them."""
        return {**node, "inputs": _renamed(node["inputs"], lambda name: self._name_behind(name))}

    def _name_behind(self, name):
        phase, layer, index = self.places.get(name, (None, None, None))
        return f"{self.made[phase, layer, index]}_copy_{self.copies}" if layer == self.middle else name

    def grown(self):
        if self.copies == 0:
            return self.model
        # Layers behind get their new numbers first, so that the copies' names are free.
        self.model = json.loads(self._moved(json.dumps(self.model)))
        self.graph, self.signature = self.model["graph_module"]["graph"], self.model["graph_module"]["signature"]
        self.nodes = nodes = self.graph["nodes"]
        f, b = self.parts["f"], self.parts["b"]
        middle, behind = self.middle, self.middle + 1
        count = range(1, self.copies + 1)
        self.graph["nodes"] = (
            nodes[: f[middle].stop]
            + [self._copy(node, c) for c in count for node in nodes[f[middle]]]
            + [self._behind(node) for node in nodes[f[behind]]]
            + nodes[f[behind].stop : b[behind].start]
            + [self._behind(node) for node in nodes[b[behind]]]
            + [self._copy(node, c) for c in reversed(count) for node in nodes[b[middle]]]
            + [self._copy(node, 0) for node in nodes[b[middle]]]
            + nodes[b[middle].stop :]
        )
        values = self.graph["tensor_values"]
        mine = [name for name in values if self._is_mine(name)]
        for c in count:
            values.update((self._value(name, c), values[name]) for name in mine)
        self._spread(self.graph["inputs"])
        self._spread(self.signature["input_specs"])
        self._spread(self.graph["outputs"])
        self._spread(self.signature["output_specs"])
        return self.model

    def _is_mine(self, name):
        return self.places.get(name, (None, None))[1] == self.middle or _layer_of(name) == self.middle

    def _spread(self, entries):
        """Puts the copies of the middle layer's entries behind them."""
        mine = [i for i, entry in enumerate(entries) if any(map(self._is_mine, _names(entry)))]
        copies = [
            _texts_renamed(_renamed(entries[i], lambda name: self._value(name, c)), lambda text: self._copied(text, c))
            for c in range(1, self.copies + 1)
            for i in mine
        ]
        entries[mine[-1] + 1 : mine[-1] + 1] = copies

    def grown_weights(self, weights):
        config = {self._moved(fqn): entry for fqn, entry in weights["config"].items()}
        mine = [fqn for fqn in config if _layer_of(fqn) == self.middle]
        copies = [(self._copied(fqn, c), fqn) for c in range(1, self.copies + 1) for fqn in mine]
        for index, (fqn, origin) in enumerate(copies, start=len(config)):
            config[fqn] = {**config[origin], "path_name": f"weight_{index}"}
        return {**weights, "config": config}


def _texts_renamed(thing, text):
    if isinstance(thing, str):
        return text(thing)
    if isinstance(thing, dict):
        return {key: _texts_renamed(value, text) for key, value in thing.items()}
    return thing


def _outputs(node):
    return [name for output in node["outputs"] for name in _names(output)]


def _names(thing):
    """Every value that an argument, an output or an entry of the signature refers to."""
    if isinstance(thing, list):
        return [name for one in thing for name in _names(one)]
    if not isinstance(thing, dict):
        return []
    if set(thing) == {"name"}:
        return [thing["name"]]
    return [name for value in thing.values() for name in _names(value)]

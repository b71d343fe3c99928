"""A module whose optimizer has taken steps: the checkpoint from which dcrun goes on, written next to the archive."""

from torch.export.graph_signature import OutputKind

from .capture import strip
from .checkpoint import Checkpoint, write_checkpoint
from .errors import ExportError
from .optimizer_kinds import kind_of
from .optimizer_state import of_optimizer, read_state
from .ties import find_aliases


class TrainedState:
    """The state of `optimizer`; it does not exist for None and for one that has taken no step."""

    def __init__(self, step, root, program, optimizer, steps_taken):
        self._module, self._root = step, root
        self._state = None if optimizer is None else self._read(program, optimizer, steps_taken)
        self.path = ""  # of the checkpoint, once written

    @property
    def exists(self):
        return self._state is not None

    @property
    def step(self):
        return self._state.step

    @property
    def notes(self):
        """Sentences for the archive and its plans."""
        return self._state.notes + [
            f"the optimizer has taken {self.step} steps, and their moments are in the checkpoint that was written with the archive: "
            "begin with dcrun --resume and its folder; with --weights alone the moments begin at zero"
        ]

    def require_weights(self, headless):
        if headless:
            raise ExportError(f"the optimizer has taken {self.step} steps, but a headless archive has no weights to go on from; export with weights")

    def write(self, folder, samples):
        """Writes the checkpoint, if there is a state. `samples`: that its steps have read."""
        if not self.exists:
            return
        persistent = self._module.state_dict().keys()
        buffers, hidden = {}, {}
        for fqn, buffer in self._module.named_buffers():
            (buffers if fqn in persistent else hidden)[strip(fqn, self._root)] = buffer
        parameters = self._parameters()
        for fqn in self._module.written_parameters:
            buffers[strip(fqn, self._root)] = parameters.pop(strip(fqn, self._root))
        self.path = write_checkpoint(
            folder,
            Checkpoint(
                step=self.step,
                samples=samples,
                optimizer=self._state.kind,
                parameters=parameters,
                buffers=buffers,
                hidden=hidden,
                moments=self._state.moments,
                aliases=find_aliases(self._module, self._root),
            ),
        )

    def _parameters(self):
        return {strip(fqn, self._root): parameter for fqn, parameter in self._module.named_parameters()}

    def _read(self, program, optimizer, steps_taken):
        parameters = self._parameters()
        saved = of_optimizer(optimizer, {id(parameter): fqn for fqn, parameter in parameters.items()})
        shapes = {fqn: parameter.shape for fqn, parameter in parameters.items()}
        updated = [s.target for s in program.signature.output_specs if s.kind is OutputKind.GRADIENT_TO_PARAMETER]
        return read_state(kind_of(optimizer), saved, shapes, updated, steps_taken)

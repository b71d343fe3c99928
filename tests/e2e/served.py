"""dcrun without the time it takes to load libtorch: forked from a dcrun that has it loaded (keep_loaded.cpp).

A rank then starts in a tenth of the processor time; what it does is the same, in a process as before. Launchers other than dcrun -n,
and jobs whose environment decides how libraries are loaded, start programs anew; under DCC_SLOW_TESTS=1 all do.
"""

import atexit
import contextlib
import os
import socket
import struct
import subprocess
import tempfile

import sanitized

VARIABLE = "DCC_TEST_SERVED"  # the socket of a server that other processes use too
HEAD, ANSWER = struct.Struct("<III"), struct.Struct("<iiq")
processor_seconds = 0.0  # of all that was run from this process
_own = contextlib.ExitStack()  # the server of this process; it ends when this process closes its input
atexit.register(_own.close)


def possible(command):
    """Whether this command may be served: a dcrun -n, with the libraries built."""
    return os.path.basename(command[0]) == "dcrun" and "-n" in command[1:2] and os.environ.get("DCC_SLOW_TESTS") != "1" and _can_serve(command[0])


def _libraries(program):
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(program))), "lib")
    return [os.path.join(folder, name) for name in ("libkeep_loaded.so", "libdcrun_aten.so")]


def _can_serve(program):
    return all(os.path.exists(path) for path in _libraries(program)) and not sanitized.library(program)


@contextlib.contextmanager
def server(program):
    """A server for this process and those that it starts. Yields its process id, or None where the libraries are not built or a sanitizer is."""
    preloaded, library = _libraries(program)
    if not _can_serve(program):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="dcc-served-", dir="/tmp") as folder:  # a socket's path must be short
        path = os.path.join(folder, "socket")
        # The last two as dcrun sets them before it loads the library.
        environment = {
            "OMP_WAIT_POLICY": "passive",
            "GOMP_SPINCOUNT": "0",
            **os.environ,
            "LD_PRELOAD": preloaded,
            "DCC_KEEP_LOADED": path,
            "DCC_KEEP_LIBRARY": library,
        }
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("the server of dcrun did not start; run with DCC_SLOW_TESTS=1 to do without")
            before = {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}
            os.environ[VARIABLE] = path
            try:
                yield process.pid
            finally:
                del os.environ[VARIABLE]
                os.environ.update(before)


def run(command, environment, limit):
    """As subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit); standard input is empty."""
    global processor_seconds
    if VARIABLE not in os.environ:
        _own.enter_context(server(command[0]))
    with socket.socket(socket.AF_UNIX) as connection, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        connection.settimeout(limit)
        connection.connect(os.environ[VARIABLE])
        variables = [f"{name}={value}" for name, value in environment.items()]
        text = b"".join(word.encode() + b"\0" for word in (os.getcwd(), *command, *variables))
        socket.send_fds(connection, [HEAD.pack(len(text), len(command), len(variables))], [out.fileno(), err.fileno()])
        connection.sendall(text)
        try:
            answer = connection.recv(ANSWER.size, socket.MSG_WAITALL)
        except TimeoutError:
            raise subprocess.TimeoutExpired(command, limit) from None
        if len(answer) != ANSWER.size:
            raise RuntimeError(f"the server of dcrun ended: {' '.join(command)}")
        status, _, microseconds = ANSWER.unpack(answer)
        processor_seconds += microseconds / 1e6
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), out.read(), err.read())

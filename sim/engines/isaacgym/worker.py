"""Worker of Isaac Gym, started by its path in an interpreter, Python 3.7 or 3.8, that can `import isaacgym`.

Its arguments are three open files: commands, answers, shared memory. It imports nothing of this project but
modules of this folder. What it prints, and the stack of a crash, goes to its standard error.
"""

from __future__ import annotations

import faulthandler
import mmap
import sys
import traceback
from typing import Any, Callable

import protocol  # type: ignore[import-not-found] # in this folder, which is on the path of a script

MakeSim = Callable[[Any, Any], Any]  # (description, slots) -> simulation, as `gymsim.GymSim`


def make_gymsim(description: Any, slots: Any) -> Any:
    import gymsim  # type: ignore[import-not-found] # imports isaacgym, only when it is asked for

    return gymsim.GymSim(description, slots)


def serve(commands: int, answers: int, memory: int, make_sim: MakeSim = make_gymsim) -> None:
    """Serve commands until CLOSE, or until the engine has ended."""
    sim = None
    try:
        while True:
            message = protocol.receive(commands)
            try:
                done = None
                if message["do"] == protocol.HELLO:
                    done = {"version": protocol.VERSION, "python": list(sys.version_info[:2])}
                elif message["do"] == protocol.INIT:
                    shared = mmap.mmap(memory, protocol.size_bytes(message["sizes"]))
                    sim = make_sim(message["description"], protocol.slots(shared, message["sizes"]))
                elif message["do"] == protocol.CLOSE:
                    protocol.send(answers, {"done": None})
                    return
                else:
                    done = _obey(sim, message)
            except ImportError:
                protocol.send(answers, {"failed": protocol.MISSING, "text": traceback.format_exc()})
            except Exception:
                protocol.send(answers, {"failed": protocol.BROKEN, "text": traceback.format_exc()})
            else:
                protocol.send(answers, {"done": done})
    except protocol.Closed:
        pass  # the engine has ended
    finally:
        if sim is not None:
            sim.close()


def _obey(sim: Any, message: Any) -> Any:
    if sim is None:
        raise RuntimeError("{} before INIT".format(message["do"]))
    if message["do"] == protocol.STEP:
        return sim.step(message["substeps"])
    if message["do"] == protocol.SET_STATE:
        return sim.set_state(message["worlds"])
    if message["do"] == protocol.RANDOMISE:
        return sim.randomise(message["worlds"], message["changes"])
    raise RuntimeError("an unknown command, {}".format(message["do"]))


def main(make_sim: MakeSim = make_gymsim) -> None:
    faulthandler.enable(all_threads=False)
    commands, answers, memory = (int(word) for word in sys.argv[1:4])
    serve(commands, answers, memory, make_sim)


if __name__ == "__main__":
    main()

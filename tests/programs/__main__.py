"""Tries programs on Skink: whether each does what it is for.

    sudo python3 tests/programs [--topology T] [--nic xdp|packet] [--kills SECONDS] [PROGRAM...]

T is `kernel` (whether the case itself works), `library`, `single` or `split`. With --kills a random process of the stack is killed
each so many seconds meanwhile. A program that isn't installed is left out. docs/programs.md has what was found. SKINK names
another build, beside which its libskink.so lies.

Needs root and whatever is to be tried; the clients are ab, curl, ncat and those of the program. `make test` doesn't run it.
"""

import argparse, json, os, random, signal, subprocess, sys, threading, time
from cases import CASES
from scene import SKINK, Failed, Scene


def components(scene):
    """The process ids of the stack."""
    shown = subprocess.run(scene.at_server + [SKINK, "ps", "--json", scene.name], capture_output=True, text=True).stdout
    instances = json.loads(shown)["instances"] if shown else []
    processes = [process for instance in instances for process in instance["processes"]]
    return [process["pid"] for process in processes if process.get("components") and process.get("pid")]


def kill(scene, seconds, over, kills):
    choice = random.Random(7)
    while not over.wait(seconds):
        pids = components(scene)
        if pids:
            try:
                os.kill(choice.choice(pids), signal.SIGKILL)
                kills.append(time.time())
            except ProcessLookupError:
                pass


def attempt(name, arguments):
    began, kills, over = time.time(), [], threading.Event()
    scene = Scene(arguments.topology, arguments.nic)
    killer = threading.Thread(target=kill, args=(scene, arguments.kills, over, kills))
    try:
        if arguments.kills:
            killer.start()
        CASES[name](scene)
        found = "ok    "
    except FileNotFoundError as missing:
        found = f"skip   {missing}"
    except Failed as failed:
        missing = "there is no program" in scene.logs()
        found = "skip  " if missing else f"FAILED {failed}\n{scene.logs()}"
    finally:
        over.set()
        if killer.is_alive():
            killer.join()
        scene.end()
    deaths = f", {len(kills)} kills" if arguments.kills else ""
    print(f"{found[:6]} {arguments.topology} {arguments.nic} {name} ({time.time() - began:.1f} s{deaths}){found[6:]}", flush=True)
    return not found.startswith("FAILED")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--topology", default="single", choices=["kernel", "library", "single", "split"])
    parser.add_argument("--nic", default="packet", choices=["packet", "xdp"])
    parser.add_argument("--kills", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.programs if name not in CASES]
    if unknown:
        parser.error(f"there is no case {unknown[0]}; there are {', '.join(CASES)}")
    good = [attempt(name, arguments) for name in arguments.programs or CASES]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()

"""Running what was brought along: programs, libraries, machine code; and what the machine has."""

import ctypes
import glob
import mmap
import os
import shutil
import sys
from pathlib import Path

from tests.attacks.attack import (
    NOTHING_RUNS,
    ONLY_ROOT,
    ONLY_X86,
    RESTRICTED,
    SANDBOXED,
    STANDARD,
    attack,
)
from tests.attacks.kit import Parameters, call, libc, succeeds, what_works


@attack()
def starts_a_program_it_brought(p: Parameters) -> object:
    def start(place: str) -> None:
        program = shutil.copy("/usr/bin/env", f"{place}/{p['marker']}")
        os.chmod(program, 0o755)
        os.waitpid(os.posix_spawn(program, [program, "true"], {}), 0)

    places = ("/tmp", "/dev/shm", p["arena"])
    return what_works({place: lambda at=place: start(at) for place in places})


@attack()
def starts_a_copy_of_the_interpreter(p: Parameters) -> object:
    copy = f"{p['arena']}/python"
    shutil.copy(os.path.realpath("/proc/self/exe"), copy)
    os.chmod(copy, 0o755)
    child = os.posix_spawn(copy, [copy, "-c", "pass"], dict(os.environ))
    return os.waitpid(child, 0)[1] == 0


@attack()
def starts_a_script_by_its_first_line(p: Parameters) -> object:
    script = Path(p["arena"], "script")
    script.write_text("#!/usr/bin/env true\n")
    script.chmod(0o755)
    return os.waitpid(os.posix_spawn(script, ["script"], dict(os.environ)), 0)[1] == 0


@attack(toothless="" if shutil.which("env") else "this machine has no /usr/bin/env")
def has_the_dynamic_loader_start_a_program_it_brought(p: Parameters) -> object:
    program = shutil.copy("/usr/bin/env", f"{p['arena']}/program")
    loader = next(at for at in glob.glob("/lib*/ld-linux*") + glob.glob("/lib/*/ld-linux*"))
    return os.waitpid(os.posix_spawn(loader, [loader, program, "true"], {}), 0)[1] == 0


@attack()
def starts_a_program_that_has_no_name(p: Parameters) -> object:
    """From memory, and from a file without a directory entry."""
    made = os.memfd_create("program", 0)
    os.write(made, Path("/usr/bin/env").read_bytes())
    child = os.fork()
    if child == 0:
        os.execve(made, ["env", "true"], {})
    return os.waitpid(child, 0)[1] == 0


@attack()
def starts_an_unlinked_file_by_its_descriptor(p: Parameters) -> object:
    made = os.open(p["arena"], os.O_TMPFILE | os.O_RDWR, 0o755)
    os.write(made, Path("/usr/bin/env").read_bytes())
    held = os.open(f"/proc/self/fd/{made}", os.O_RDONLY)
    os.close(made)
    child = os.fork()
    if child == 0:
        call("execveat", held, b"", 0, 0, 0x1000)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


@attack()
def loads_a_library_it_brought(p: Parameters) -> object:
    """From the issue: exec and dlopen from writable places are impossible."""
    library = next(iter(glob.glob("/usr/lib/*/libdl.so.2") + glob.glob("/usr/lib64/libdl.so.2")))
    found = []
    for place in ("/tmp", "/dev/shm", p["arena"]):
        copy = f"{place}/{p['marker']}.so"
        if succeeds(lambda at=copy: shutil.copy(library, at) and ctypes.CDLL(at)):
            found.append(place)
    return found


@attack()
def imports_an_extension_module_it_brought(p: Parameters) -> object:
    there = next(one for one in sys.path if glob.glob(f"{one}/_json*.so"))
    for module in glob.glob(f"{there}/_json*.so"):
        shutil.copy(module, f"{p['arena']}/_json.so")
    ctypes.PyDLL(f"{p['arena']}/_json.so")
    return ["a module of machine code"]


@attack()
def maps_a_file_it_wrote_as_code(p: Parameters) -> object:
    both = mmap.PROT_READ | mmap.PROT_EXEC

    def maps(place: str, flags: int) -> None:
        file = os.open(f"{place}/{p['marker']}", os.O_RDWR | os.O_CREAT, 0o755)
        os.write(file, bytes(4096))
        mmap.mmap(file, 4096, flags=flags, prot=both)

    places, kinds = ("/tmp", "/dev/shm", p["arena"]), (mmap.MAP_PRIVATE, mmap.MAP_SHARED)
    ways = [(place, flags) for place in places for flags in kinds]
    return what_works({f"{way}": lambda w=way: maps(*w) for way in ways})


@attack()
def turns_a_mapped_file_into_code_afterwards(p: Parameters) -> object:
    file = os.open(f"{p['arena']}/code", os.O_RDWR | os.O_CREAT, 0o755)
    os.write(file, bytes(4096))
    page = mmap.mmap(file, 4096, flags=mmap.MAP_PRIVATE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    call("mprotect", address, 4096, 5)
    return ["code in a file of its own"]


@attack(levels=(RESTRICTED,))
def runs_code_in_memory_that_is_both_written_and_executed(p: Parameters) -> object:
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex("b82a000000c3"))
    return ["a page to write and to run"]


@attack(levels=(RESTRICTED,))
def makes_memory_executable_after_writing_it(p: Parameters) -> object:
    page = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return what_works(
        {
            "mprotect": lambda: call("mprotect", address, 4096, 5),
            "pkey_mprotect": lambda: call("pkey_mprotect", address, 4096, 5, -1),
        }
    )


@attack(levels=(RESTRICTED,))
def maps_the_same_memory_twice_once_to_write_once_to_run(p: Parameters) -> object:
    """What a JIT compiler does where one page may not be both."""
    made = os.memfd_create("code", 0)
    os.truncate(made, 4096)
    mmap.mmap(made, 4096, prot=3)
    mmap.mmap(made, 4096, prot=5)
    return ["code through two doors"]


@attack(levels=(RESTRICTED,))
def makes_the_stack_executable(p: Parameters) -> object:
    """With PROT_GROWSDOWN as glibc does it for libraries that ask for it."""
    here = ctypes.addressof(ctypes.c_int()) & ~4095
    call("mprotect", here, 4096, 7)
    return ["code on the heap"]


@attack(levels=(RESTRICTED,), toothless=ONLY_X86)
def runs_what_it_wrote_into_anonymous_memory(p: Parameters) -> object:
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex("b82a000000c3"))  # mov eax, 42; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 42


@attack(levels=NOTHING_RUNS)
def starts_programs_of_the_machine(p: Parameters) -> object:
    programs = ("/usr/bin/env", "/bin/sh", "/usr/bin/python3", "/usr/bin/perl", "/bin/busybox")
    return [at for at in programs if succeeds(lambda a=at: os.posix_spawn(a, [a, "true"], {}))]


@attack(levels=NOTHING_RUNS)
def starts_the_interpreter_again(p: Parameters) -> object:
    interpreter = sys.executable or os.path.realpath("/proc/self/exe")
    child = os.posix_spawn(interpreter, [interpreter, "-c", "pass"], dict(os.environ))
    return os.waitpid(child, 0)[1] == 0


@attack(levels=NOTHING_RUNS)
def starts_the_dynamic_loader(p: Parameters) -> object:
    loader = next(at for at in glob.glob("/lib*/ld-linux*") + glob.glob("/lib/*/ld-linux*"))
    return os.waitpid(os.posix_spawn(loader, [loader, "--version"], {}), 0)[1] == 0


@attack(levels=NOTHING_RUNS)
def becomes_another_program(p: Parameters) -> object:
    """Its result is what the other one says."""
    child = os.fork()
    if child == 0:
        libc.execv(b"/usr/bin/env", (ctypes.c_char_p * 3)(b"env", b"true", None))
        os._exit(7)
    return os.waitpid(child, 0)[1] == 0


@attack(levels=SANDBOXED, toothless="it belongs to root in the control as well")
def overwrites_the_interpreter_it_runs_in(p: Parameters) -> object:
    """As a container once overwrote runc: through the link to the running program."""
    ways = ("/proc/self/exe", "/proc/1/exe", sys.executable, os.__file__, ctypes.__file__)
    return what_works({at: lambda a=at: os.open(a, os.O_RDWR) for at in ways if at})


@attack(levels=SANDBOXED, toothless="they belong to root in the control as well")
def leaves_compiled_modules_for_the_next_run(p: Parameters) -> object:
    cache = os.path.join(os.path.dirname(os.__file__), "__pycache__")
    return what_works(
        {
            "replace": lambda: os.rename(f"{cache}/os.cpython-313.pyc", f"{cache}/was"),
            "add": lambda: os.open(f"{cache}/{p['marker']}", os.O_CREAT | os.O_WRONLY),
            "site": lambda: os.mkdir(f"{os.path.dirname(os.__file__)}/site-packages/{p['marker']}"),
        }
    )


@attack(levels=(STANDARD,), toothless=ONLY_ROOT)
def gains_rights_by_a_set_id_program_of_the_machine(p: Parameters) -> object:
    """`mount` and `su` belong to root; the saved user of the started process tells."""
    programs = [
        at for at in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd") if os.path.exists(at)
    ]
    child = os.posix_spawn(programs[0], [programs[0], "--help"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    uids = Path(f"/proc/{child}/status").read_text().split("Uid:")[1].split("\n")[0].split()
    return len(set(uids)) > 1 or "0" in uids

"""The system calls that each word of a level allows or refuses.

`open` names what is refused; `usual` and `threads-only` name what there is. Nothing that is there
acts on what a run shares with others: inodes of /usr and of devices, the page cache, and what the
kernel counts for all processes of a user together.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sandbox.inside.filter import arguments
from sandbox.inside.filter.arguments import ABSENT, NO, NO_LOCKS, NOT_SUPPORTED, YES, Rule
from sandbox.inside.filter.syscalls import NUMBERS


class FilterRequirements(NamedTuple):
    """What a profile's level, network and language make of the filter.

    `calls` is the level's word; `sockets`: TCP, to the proxy; `programs` may be executed;
    `new_code`: memory may become executable; `sessions`: of its own making, which only a pid
    namespace ends; `shared_memory`: there is a place for semaphores between processes; `spawns`:
    the language's runtime is a process beside the first.
    """

    calls: str
    sockets: bool = False
    programs: bool = False
    new_code: bool = False
    sessions: bool = False
    shared_memory: bool = False
    spawns: bool = False


def rules(wanted: FilterRequirements) -> dict[str, Rule]:
    """By name; a call that is not named is refused. Raises KeyError for a word that is none."""
    return {"open": _open, "usual": _usual, "threads-only": _threads_only}[wanted.calls](wanted)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _same_rule(names: Iterable[str], rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


# What every run needs: they act on its own memory, descriptors, threads and files.
_MEMORY = _names("brk mremap munmap msync")
_TIME = _names("clock_getres clock_gettime clock_nanosleep gettimeofday nanosleep time times")
_FILES = _names("""
    access chdir close close_range dup dup2 dup3 faccessat faccessat2 fchdir fdatasync fstat fsync
    ftruncate getcwd getdents64 lseek lstat newfstatat pread64 preadv pwrite64 pwritev read
    readlink readlinkat readv rename renameat rmdir stat statx truncate umask unlink unlinkat
    utimensat write writev""")
_WAITING = _names("""
    epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd2 pipe pipe2 poll ppoll pselect6 select
    timerfd_create timerfd_gettime timerfd_settime""")
_THREADS = _names("""
    exit exit_group futex getcpu gettid restart_syscall rseq sched_getaffinity sched_getparam
    sched_getscheduler sched_yield set_robust_list set_tid_address tgkill""")
_SIGNALS = _names("""
    alarm getitimer pause rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend
    rt_sigtimedwait setitimer sigaltstack""")
_ITSELF = _names("""
    getegid geteuid getgid getpgrp getpid getppid getrandom getrusage getsid getuid uname""")
_TALKING = _names("getpeername getsockname shutdown")
_NECESSARY = _MEMORY | _TIME | _FILES | _WAITING | _THREADS | _SIGNALS | _ITSELF | _TALKING

# What Standard and Strict have beside it.
_PROCESSES = _names("""
    fork getpgid getpriority kill pidfd_open pidfd_send_signal tkill vfork wait4 waitid""")
_CONVENIENT = _names("""
    capget copy_file_range epoll_create epoll_pwait2 eventfd fallocate fstatfs getgroups getresgid
    getresuid getrlimit link linkat sched_get_priority_max sched_get_priority_min sendfile
    signalfd4 statfs symlink symlinkat sysinfo timer_create timer_delete timer_getoverrun
    timer_gettime timer_settime utime utimes""")
_OWN_SESSIONS = _names("setpgid setsid")
_EXECUTING = _names("execve sysinfo")  # V8 sizes its heap by the machine's memory

# Refusals that say more than EPERM, so that programs go another way: libc falls back when a call
# is newer than the kernel, shutil and cp when a file system has no attributes. clone3 and openat2
# keep their flags in memory.
_NEWER = _names("""
    cachestat clone3 futex_requeue futex_wait futex_waitv futex_wake map_shadow_stack openat2""")
_DISPENSABLE = _names("copy_file_range epoll_pwait2 fstatfs membarrier sendfile statfs")
_ATTRIBUTES = _names("""
    fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr
    lsetxattr removexattr setxattr""")
_REFUSED_POLITELY = {
    **_same_rule(_NEWER, Rule(ABSENT)),
    **_same_rule(_ATTRIBUTES, Rule(NOT_SUPPORTED)),
    "flock": Rule(NO_LOCKS),
}

# What not even level None has.
_MOUNTS = _names("""
    chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root
    umount2""")
_NAMESPACES = _names("setns unshare")
_OTHER_PROCESSES = _names("""
    get_robust_list kcmp migrate_pages move_pages pidfd_getfd process_madvise process_mrelease
    process_vm_readv process_vm_writev ptrace""")
_KERNEL = _names("""
    _sysctl acct adjtimex bpf clock_adjtime clock_settime create_module delete_module finit_module
    get_kernel_syms init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl
    kexec_file_load kexec_load lookup_dcookie memfd_secret modify_ldt nfsservctl perf_event_open
    query_module quotactl quotactl_fd reboot remap_file_pages setdomainname sethostname
    settimeofday swapoff swapon sysfs syslog userfaultfd uselib ustat vhangup vmsplice""")
_OUTLIVING = _names("""
    add_key keyctl mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl
    msgget msgrcv msgsnd request_key semctl semget semop semtimedop shmat shmctl shmdt shmget""")
_HANDLES = _names("fanotify_init fanotify_mark name_to_handle_at open_by_handle_at")
_WITHOUT_CODE = _names("""
    afs_syscall epoll_ctl_old epoll_wait_old get_thread_area getpmsg putpmsg security
    set_thread_area tuxcall vserver""")
_NEVER = (
    *(_MOUNTS | _NAMESPACES | _OTHER_PROCESSES | _KERNEL | _OUTLIVING),
    *(_HANDLES | _WITHOUT_CODE | _OWN_SESSIONS),
)


def _open(wanted: FilterRequirements) -> dict[str, Rule]:
    return {
        **_same_rule(NUMBERS, Rule(YES)),
        **_same_rule(_NEVER, Rule(NO)),
        **_same_rule(("clone3", "openat2"), Rule(ABSENT)),
        **arguments.WHERE_ALL_ELSE_IS_OPEN,
        **({} if wanted.programs else _same_rule(("execve", "execveat"), Rule(NO))),
    }


def _usual(wanted: FilterRequirements) -> dict[str, Rule]:
    sessions = _OWN_SESSIONS if wanted.sessions else frozenset()
    return {
        **_REFUSED_POLITELY,
        **_same_rule(_NECESSARY | _PROCESSES | _CONVENIENT | sessions, Rule(YES)),
        **arguments.FILES,
        **arguments.MEMORY,
        **arguments.PAIRS,
        "clone": arguments.CLONE,
        "kill": arguments.NOT_EVERYBODY,
        **_as_wanted(wanted),
    }


def _threads_only(wanted: FilterRequirements) -> dict[str, Rule]:
    return {
        **_REFUSED_POLITELY,
        **_same_rule(_NECESSARY, Rule(YES)),
        **arguments.FILES,
        **arguments.MEMORY,
        **arguments.PAIRS,
        **_same_rule(_DISPENSABLE, Rule(ABSENT)),
        **_same_rule(("creat", "fadvise64"), Rule(NO)),
        "clone": arguments.CLONE_A_THREAD_OR_SPAWN if wanted.spawns else arguments.CLONE_A_THREAD,
        "fallocate": Rule(NOT_SUPPORTED),
        **_as_wanted(wanted),
    }


def _as_wanted(wanted: FilterRequirements) -> dict[str, Rule]:
    return {
        **({} if wanted.new_code else arguments.NO_NEW_CODE),
        **({} if wanted.shared_memory else {"futex": arguments.PRIVATE_WAKES}),
        **(arguments.CONNECTIONS if wanted.sockets else {}),
        **(_same_rule(_EXECUTING, Rule(YES)) if wanted.programs else {}),
    }

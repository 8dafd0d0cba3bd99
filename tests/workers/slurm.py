"""A Slurm of one node, on this machine, in a folder that goes away."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

SETTINGS = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=15
ReturnToService=2
MpiDefault=none
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=low Nodes={host} Default=YES PriorityTier=1 GraceTime=15 State=UP
PartitionName=high Nodes={host} PriorityTier=10 PreemptMode=OFF State=UP
"""


def find_programs():
    """Installs Slurm where that is possible.

    Returns:
        None, or a sentence that says why there is none.
    """
    if os.geteuid() != 0:
        return "Slurm's daemons are run by root here"
    if all(map(shutil.which, ("slurmctld", "slurmd", "munged"))):
        return None
    if shutil.which("apt-get") is None:
        return "Slurm is not installed, and there is no apt-get"
    for command in (["update", "-qq"], ["install", "-y", "-qq", "slurm-wlm", "munge"]):
        subprocess.run(
            ["apt-get", *command],
            capture_output=True,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
        )
    found = all(map(shutil.which, ("slurmctld", "slurmd", "munged")))
    return None if found else "apt-get could not install Slurm"


class Slurm:
    """A controller and one node; its commands find it by the environment."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="slurm"))
        self.processes = []
        (self.folder / "state").mkdir()
        (self.folder / "spool").mkdir()
        text = SETTINGS.format(
            host=socket.gethostname().partition(".")[0],
            folder=self.folder,
            ports=_free_ports(2),
            cpus=os.cpu_count(),
        )
        (self.folder / "slurm.conf").write_text(text)
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        munge = [f"--key-file={key}", f"--socket={self.folder}/munge.socket"]
        munge += [f"--{n}-file={self.folder}/munged.{n}" for n in ("pid", "log")]
        munge += [f"--seed-file={self.folder}/munged.seed"]
        self._begin("munged", "--foreground", "--force", *munge)
        socket_path = self.folder / "munge.socket"
        self._wait(socket_path.exists)
        self._begin("slurmctld", "-D", "-c")
        self._begin("slurmd", "-D")
        self._wait(lambda: "idle" in self.call("sinfo", "-h", "-o", "%t", check=False))

    def call(self, *command, check=True, **options):
        """What a command of Slurm's says."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=check,
            **options,
        )
        return done.stdout

    def remove(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self, *command):
        with open(self.folder / f"{command[0]}.out", "wb") as out:
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                env={**os.environ, **self.environment},
            )
        self.processes.append(process)

    def _wait(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            if time.monotonic() > deadline:
                logs = [p.read_text() for p in sorted(self.folder.glob("*.log"))]
                raise AssertionError("\n".join(logs)[-3000:])
            time.sleep(0.2)


def _free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports

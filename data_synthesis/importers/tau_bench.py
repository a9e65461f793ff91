"""tau-bench: a list of (task, trial) results with the dialogue under `traj`."""

from condensery.trajectory import Trajectory, content_id
from data_synthesis.importers.conversation import trajectory_of
from data_synthesis.importers.turns import Notes, read_turns


def read_tau_bench(row: dict, notes: Notes) -> Trajectory:
    """The task is what the user says first: the simulated user's instruction is not the agent's to know.

    Task numbers repeat between domains, so trials are grouped by number and instruction.
    """
    task = (row.get("info") or {}).get("task") or {}
    reward = row.get("reward")
    return trajectory_of(
        read_turns(row["traj"], notes),
        question=None,
        question_id=content_id([row.get("task_id"), task.get("instruction")]),
        rollout=row.get("trial") or 0,
        verdict=None if reward is None else reward >= 1,
    )

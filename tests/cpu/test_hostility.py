"""A short run of scripts/fuzz-frames: hostile clients one by one beside one that trains."""

from __future__ import annotations

from pathlib import Path

from hostility import ATTACKS, Bystander, Hostility
from logged_server import logged_server

FRAMES, BATCH = 1000, 100


def test_malformed_frames_and_rings_end_their_sessions_alone(tmp_path: Path) -> None:
    with logged_server(tmp_path) as server, Bystander(server.socket) as bystander:
        hostility = Hostility(server, seed=1)
        for _ in range(FRAMES // BATCH):
            bystander.train()
            hostility.send(hostility.frames(BATCH))
        for attack in ATTACKS:
            bystander.train()
            hostility.attack(attack)
    assert bystander.rounds > len(ATTACKS)
    assert hostility.malformed + hostility.sound == FRAMES
    assert hostility.malformed > FRAMES // 2
    assert server.log.read_text().count("broke the protocol") == hostility.ended
    assert not server.says("starting another worker")
    assert not server.says("Traceback")

"""A kernel that MuJoCo Warp lacks. Warp reads annotations as objects, so they are not postponed here."""

import warp as wp

wp.set_module_options({"enable_backward": False})


@wp.kernel  # type: ignore[untyped-decorator]
def note_peaks(
    contacts: wp.array(dtype=int),  # type: ignore[valid-type] # (1,), in all worlds together
    candidates: wp.array(dtype=int),  # type: ignore[valid-type] # (1,), near pairs, in the same buffer
    rows: wp.array(dtype=int),  # type: ignore[valid-type] # (n,)
    peaks: wp.array(dtype=int),  # type: ignore[valid-type] # (2,), most contacts and most rows so far
) -> None:
    world = wp.tid()
    wp.atomic_max(peaks, 1, rows[world])
    if world == 0:
        wp.atomic_max(peaks, 0, wp.max(contacts[0], candidates[0]))

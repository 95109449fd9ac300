//! The order in which ports are visited.

use ringway_net::notify::ASKED_NS;

use super::*;

/// Who would be visited, first to last, if guest 1 kicks while port 0 has more to do.
fn order(bench: &mut Bench) -> Vec<PortId> {
    bench.worker.make_ready(PortId(0));
    bench.send(1, &frame(mac(0), mac(1), 1), 1);
    let order = bench.worker.ready.iter().copied().collect();
    bench.settle();
    order
}

#[test]
fn who_wakes_up_goes_first_while_somebody_asks() {
    let mut bench = Bench::new(2);
    bench.introduce();
    let (as_they_came, turned_round) = ([0, 1].map(PortId), [1, 0].map(PortId));
    assert_eq!(order(&mut bench), as_they_came);

    bench.worker.asked_at = Some(bench.worker.turn_at);
    assert_eq!(order(&mut bench), turned_round);
    bench.worker.turn_at.0 += ASKED_NS - 1;
    assert_eq!(order(&mut bench), turned_round);

    bench.worker.turn_at.0 += 1;
    assert_eq!(order(&mut bench), as_they_came, "nobody asks any more");
}

#[test]
fn who_wakes_up_again_and_again_does_not_keep_another_from_its_visit() {
    let mut bench = Bench::new(2);
    bench.introduce();
    bench.worker.asked_at = Some(bench.worker.turn_at);
    for _ in 0..3 {
        // A turn, as in `run`: who is ready when it begins is visited.
        bench.worker.make_ready(PortId(0));
        bench.send(1, &frame(mac(0), mac(1), 1), 1);
        let visited: Vec<PortId> =
            (0..bench.worker.ready.len()).filter_map(|_| Some(bench.step()?.0)).collect();
        assert_eq!(visited, [1, 0].map(PortId));
    }
}

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
    for turn in 1..=3 {
        for port in [0, 1] {
            bench.send(port, &frame(mac(1 - port), mac(port), 1), 1);
        }
        bench.worker.visit_ready();
        bench.guests.iter_mut().for_each(|guest| _ = guest.receive());
        let received: Vec<usize> = bench.guests.iter().map(|guest| guest.received.len()).collect();
        assert_eq!(received, [turn, turn]);
    }
}

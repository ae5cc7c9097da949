use super::*;
use crate::udp::datagram::LEN_MIN;
use crate::udp::keys::{Role, Secret};
use fullbore_base::Rng;
use fullbore_testkit::seeds;

const ID: PathId = PathId::new(0x1234_5678_9abc_def0);
const START: Instant = Instant::from_nanos(1_000_000_000);

fn secret() -> Secret {
    Secret::from_bytes([9; 32])
}

fn address(port: u16) -> Route {
    SocketAddr::from(([192, 0, 2, 1], port)).into()
}

/// A door of one end of the connection `ID`.
fn door(role: Role) -> Door<u8> {
    let mut door = Door::new(4);
    let keys = secret().keys(role);
    let remote = (role == Role::Client).then(|| address(1));
    door.add(START, ID, (keys.sealer, keys.opener), remote, 0)
        .expect("there is room");
    door
}

fn send(door: &mut Door<u8>) -> Vec<u8> {
    let mut out = vec![7; 200];
    let len = door
        .seal(ID, &mut out, 100)
        .expect("the connection is there");
    out.truncate(len);
    out
}

#[test]
fn a_datagram_is_let_in_once() {
    let (mut client, mut server) = (door(Role::Client), door(Role::Server));
    let datagram = send(&mut client);
    let admitted = server.handle_datagram(START, address(5), &datagram);
    let segment = HEADER_BYTES..HEADER_BYTES + 100;
    let first = Admitted {
        id: ID,
        segment: segment.clone(),
        is_first: true,
    };
    assert_eq!(admitted, Ok(first));
    assert_eq!(datagram[segment], [7; 100]);
    let again = server.handle_datagram(START, address(5), &datagram);
    assert_eq!(again, Err(Dropped::Replayed));
    let next = server.handle_datagram(START, address(5), &send(&mut client));
    assert!(!next.expect("the next one").is_first);
    let stats = server.stats();
    assert_eq!((stats.received, stats.replayed), (2, 1));
}

#[test]
fn what_is_not_genuine_is_dropped() {
    let (mut client, mut server) = (door(Role::Client), door(Role::Server));
    let datagram = send(&mut client);
    let mut dropped = |bytes: &[u8]| server.handle_datagram(START, address(5), bytes).err();
    let mut forged = datagram.clone();
    forged[HEADER_BYTES] ^= 1;
    assert_eq!(dropped(&forged), Some(Dropped::Forged));
    let mut unknown = datagram.clone();
    unknown[0] ^= 1;
    assert_eq!(dropped(&unknown), Some(Dropped::Unknown));
    assert_eq!(dropped(&datagram[..LEN_MIN - 1]), Some(Dropped::Malformed));
    assert_eq!(dropped(&[]), Some(Dropped::Malformed));
    // Its own datagram, sent back.
    let own = send(&mut server);
    let reflected = server.handle_datagram(START, address(5), &own);
    assert_eq!(reflected, Err(Dropped::Forged));
    assert!(server.handle_datagram(START, address(5), &datagram).is_ok());
}

/// A peer that has the secret and uses a number that no sender gets to.
#[test]
fn a_number_past_the_last_is_dropped() {
    let keys = secret().keys(Role::Client);
    let mut server = door(Role::Server);
    for (number, is_taken) in [
        (NUMBERS_MAX - 1, true),
        (NUMBERS_MAX, false),
        (u64::MAX, false),
    ] {
        let mut datagram = [0; LEN_MIN];
        Header { id: ID, number }.emit(&mut datagram);
        keys.sealer.seal(number, &mut datagram);
        let result = server.handle_datagram(START, address(5), &datagram);
        assert_eq!(result.is_ok(), is_taken, "{number}");
    }
    assert_eq!(server.stats().malformed, 2);
}

#[test]
fn a_peer_is_where_its_newest_datagram_came_from() {
    let (mut client, mut server) = (door(Role::Client), door(Role::Server));
    let [first, second, third] = [(); 3].map(|()| send(&mut client));
    assert_eq!(server.route(ID), None);
    let mut arrive = |datagram: &[u8], port| {
        let _ = server.handle_datagram(START, address(port), datagram);
        server.route(ID)
    };
    assert_eq!(arrive(&first, 5), Some(address(5)));
    assert_eq!(arrive(&third, 6), Some(address(6)));
    // Genuine and new, but not the newest.
    assert_eq!(arrive(&second, 7), Some(address(6)));
    // Heard by others and sent again.
    assert_eq!(arrive(&third, 8), Some(address(6)));
    let mut forged = send(&mut client);
    forged[20] ^= 1;
    assert_eq!(arrive(&forged, 9), Some(address(6)));
    assert_eq!(server.stats().moved, 1);
}

#[test]
fn there_is_room_for_so_many_connections_and_no_more() {
    let mut door: Door<u8> = Door::new(2);
    let add = |door: &mut Door<u8>, id| {
        let keys = secret().keys(Role::Server);
        door.add(START, PathId::new(id), (keys.sealer, keys.opener), None, 0)
    };
    assert_eq!(add(&mut door, 1), Ok(()));
    assert_eq!(add(&mut door, 1), Err(Full), "the same name");
    assert_eq!(add(&mut door, 2), Ok(()));
    assert_eq!(add(&mut door, 3), Err(Full));
    assert_eq!(door.remove(PathId::new(1)), Some(0));
    assert_eq!(add(&mut door, 3), Ok(()));
    assert_eq!(door.due.len(), 2, "nothing is left of the first");
    let most: Door<u8> = Door::new(usize::MAX);
    assert_eq!(most.paths_max, PATHS_MAX);
}

#[test]
fn who_does_not_come_and_who_falls_silent_is_given_up() {
    let mut server = door(Role::Server);
    let nearly = START + (ARRIVAL_MAX - Duration::from_nanos(1));
    assert_eq!(server.poll_expired(nearly), None);
    assert_eq!(server.poll_timeout(), Some(START + ARRIVAL_MAX));
    assert_eq!(server.poll_expired(START + ARRIVAL_MAX), Some(ID));
    assert_eq!(server.poll_expired(START + ARRIVAL_MAX), None, "once");

    let (mut client, mut server) = (door(Role::Client), door(Role::Server));
    let datagram = send(&mut client);
    assert!(
        server
            .handle_datagram(nearly, address(5), &datagram)
            .is_ok()
    );
    assert_eq!(server.poll_expired(START + ARRIVAL_MAX), None);
    // A replay is no sign of life.
    let later = nearly + Duration::from_secs(60);
    assert!(
        server
            .handle_datagram(later, address(5), &datagram)
            .is_err()
    );
    let end = nearly + SILENCE_MAX;
    assert_eq!(server.poll_timeout(), Some(end));
    assert_eq!(server.poll_expired(end), Some(ID));
    assert_eq!(server.stats().expired, 1);
}

/// Everything that somebody can send who hears all and has no key: the door stays as it was.
#[test]
fn nothing_that_an_adversary_sends_changes_anything() {
    for seed in seeds(0..10) {
        let mut rng = Rng::seeded(seed);
        let (mut client, mut server) = (door(Role::Client), door(Role::Server));
        let mut heard: Vec<Vec<u8>> = Vec::new();
        for _ in 0..50 {
            let datagram = send(&mut client);
            if rng.below(4) > 0 {
                let _ = server.handle_datagram(START, address(5), &datagram);
                heard.push(datagram.clone());
            }
            // What was lost on its way may come later from anywhere, changed.
            let mut changed = datagram;
            let bit = rng.index(changed.len() * 8);
            changed[bit / 8] ^= 1 << (bit % 8);
            heard.push(changed);
        }
        let before = format!("{:?} {:?}", server.paths, server.due);
        for _ in 0..500 {
            let mut bytes = heard[rng.index(heard.len())].clone();
            match rng.below(4) {
                0 => bytes.truncate(rng.index(bytes.len() + 1)),
                1 => rng.fill(&mut bytes[HEADER_BYTES..]),
                2 => bytes.extend_from_slice(&[0; 3]),
                _ => {}
            }
            let from = address(100 + u16::try_from(rng.below(1000)).expect("small"));
            let later = START + Duration::from_millis(rng.below(10_000));
            assert!(server.handle_datagram(later, from, &bytes).is_err());
        }
        assert_eq!(format!("{:?} {:?}", server.paths, server.due), before);
        let stats = server.stats();
        let dropped = stats.malformed + stats.unknown + stats.replayed + stats.forged;
        assert_eq!(dropped, 500);
    }
}

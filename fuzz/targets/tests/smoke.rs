//! Every target on its seeds and on mutations of them. Takes `FUZZ_SEED` and `FUZZ_ITERATIONS`, and
//! prints the seed; `FUZZ_TARGET` picks one target.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fullbore_base::Rng;
use fullbore_fuzz_targets::{TARGETS, mutate};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number"))
    })
}

#[test]
fn no_target_panics() {
    let seed = number("FUZZ_SEED", u64::from(std::process::id()));
    let iterations = number("FUZZ_ITERATIONS", 500);
    let only = std::env::var("FUZZ_TARGET").unwrap_or_default();
    println!("FUZZ_SEED={seed} FUZZ_ITERATIONS={iterations}");
    let chosen = TARGETS.iter().filter(|t| only.is_empty() || t.name == only);
    for target in chosen {
        let mut rng = Rng::seeded(seed);
        let seeds = (target.seeds)();
        for input in &seeds {
            (target.run)(input);
        }
        for i in 0..iterations {
            let input = mutate::next(&mut rng, &seeds);
            let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
            assert!(
                outcome.is_ok(),
                "{} panicked: FUZZ_TARGET={} FUZZ_SEED={seed}, iteration {i}, input {input:02x?}",
                target.name,
                target.name
            );
        }
        println!("{}: {iterations} inputs", target.name);
    }
}

#[test]
fn every_target_has_its_wrapper() {
    let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("it is beside us");
    for target in TARGETS {
        let wrapper = fuzz.join(format!("fuzz_targets/{}.rs", target.name));
        let text = std::fs::read_to_string(&wrapper).unwrap_or_default();
        assert!(
            text.contains(&format!("run(\"{}\"", target.name)),
            "{wrapper:?}"
        );
        let entry = format!("name = \"{}\"\n", target.name);
        assert!(
            manifest.contains(&entry),
            "{} is not in fuzz/Cargo.toml",
            target.name
        );
    }
}

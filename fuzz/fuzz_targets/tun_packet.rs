#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fullbore_fuzz_targets::run("tun_packet", data));

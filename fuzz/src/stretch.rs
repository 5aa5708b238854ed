//! Large files from short inputs.
//!
//! A fuzzer that grows an input byte by byte never gets to a file of hundreds of rules.
//! The bytes that an input lacks are therefore pseudorandom, and always the same for
//! it.

/// Returns `input`, extended to at least `bytes` bytes. The added bytes depend only on
/// the first eight, so changing a later byte leaves them as they are.
#[must_use]
pub fn stretched(input: &[u8], bytes: usize) -> Vec<u8> {
    let seed = input.iter().take(8);
    let mut state = seed.fold(0, |state, byte| state << 8 | u64::from(*byte));
    let mut stretched = input.to_vec();
    while stretched.len() < bytes {
        stretched.extend(split_mix(&mut state).to_le_bytes());
    }
    stretched
}

/// Returns the next number of the generator `SplitMix64`.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

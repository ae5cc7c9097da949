//! Finite-field Diffie-Hellman in constant time: RFC 4253 section 8, RFC 4419, RFC 8268.

use crate::provider::{Group, KexError, SecureRandom};
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::{Zeroize, Zeroizing};

/// Bits of the secret exponent. NIST SP 800-56A rev. 3, 5.6.1.1: at least twice the strength of
/// what the keys are for; 256-bit keys are the strongest here, and a short exponent makes group 18
/// sixteen times cheaper.
const EXPONENT_BITS: u32 = 512;

/// One side's secret exponent in its group.
pub(super) struct Secret {
    params: BoxedMontyParams,
    exponent: BoxedUint,
    public: Vec<u8>,
}

impl Secret {
    /// Draws an exponent and computes the public value.
    pub(super) fn generate(group: &Group, random: &mut dyn SecureRandom) -> Result<Self, KexError> {
        let p = BoxedUint::from_be_slice_vartime(&group.p);
        let params = Option::<Odd<BoxedUint>>::from(p.to_odd())
            .map(BoxedMontyParams::new_vartime)
            .ok_or(KexError::Group)?;
        let generator = element(&group.g, &params).ok_or(KexError::Group)?;
        let mut bytes = Zeroizing::new([0; EXPONENT_BITS as usize / 8]);
        random.fill(&mut *bytes);
        let exponent =
            BoxedUint::from_be_slice(&*bytes, EXPONENT_BITS).map_err(|_| KexError::Internal)?;
        let public = power(generator, &exponent, &params);
        Ok(Self {
            params,
            exponent,
            public: public.to_vec(),
        })
    }

    /// The public value, as long as the modulus.
    pub(super) fn public(&self) -> &[u8] {
        &self.public
    }

    /// The shared value, as long as the modulus.
    pub(super) fn agree(&self, remote_public: &[u8]) -> Result<Zeroizing<Vec<u8>>, KexError> {
        let remote = element(remote_public, &self.params).ok_or(KexError::PublicValue)?;
        Ok(Zeroizing::new(
            power(remote, &self.exponent, &self.params).into_vec(),
        ))
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.exponent.zeroize();
    }
}

/// RFC 8268 4: a value in 2..=p-2, which leaves out the ends that give the secret away.
fn element(value: &[u8], params: &BoxedMontyParams) -> Option<BoxedUint> {
    let value = BoxedUint::from_be_slice(value, params.bits_precision()).ok()?;
    let modulus = params.modulus().as_ref();
    let one = BoxedUint::one_with_precision(params.bits_precision());
    let last = modulus.wrapping_sub(&one);
    (value > one && value < last).then_some(value)
}

fn power(base: BoxedUint, exponent: &BoxedUint, params: &BoxedMontyParams) -> Box<[u8]> {
    BoxedMontyForm::new(base, params)
        .pow_bounded_exp(exponent, EXPONENT_BITS)
        .retrieve()
        .to_be_bytes()
}

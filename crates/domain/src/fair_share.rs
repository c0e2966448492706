//! Fair share: how many of a limited number of slots one tenant may hold.
//!
//! A slot cannot be taken back from a tenant whose work hangs. So the last free slots are reserved for
//! tenants without any, and the fewer are free, the less one tenant may hold:
//!
//! - While more than half are free, a tenant may hold as many as are free beyond that half. A single
//!   tenant gets a quarter of all.
//! - The other half is for tenants that hold few: one for every 32 that are free, and at least one.
//!
//! Tenants that arrive one after the other and hang on all their slots get 128, 64, 32, 16, … of 512,
//! later 8, 4, 2 and 1, so that it takes more than 80 of them until the next tenant gets none.

/// Number of free slots that allow a tenant one of them.
const FREE_PER_SLOT: usize = 32;

/// Number of slots up to which a tenant may take another one, when `taken` of `limit` are in use by all
/// tenants.
///
/// # Examples
/// ```
/// use punctual_domain::fair_share;
///
/// assert_eq!(fair_share(512, 0), 256);
/// assert_eq!(fair_share(512, 384), 4);
/// assert_eq!(fair_share(512, 512), 0);
/// ```
#[must_use]
pub const fn fair_share(limit: usize, taken: usize) -> usize {
    let free = limit.saturating_sub(taken);
    if free == 0 {
        return 0;
    }
    let beyond_half = free.saturating_sub(limit / 2);
    let of_the_rest = free / FREE_PER_SLOT;
    let share = if beyond_half > of_the_rest {
        beyond_half
    } else {
        of_the_rest
    };
    if share == 0 { 1 } else { share }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots of tenants that arrive one after the other, take all they may, and never release any.
    fn hoards(limit: usize) -> Vec<usize> {
        let mut taken = 0;
        let mut hoards = Vec::new();
        while taken < limit {
            let mut held = 0;
            while held < fair_share(limit, taken) {
                held += 1;
                taken += 1;
            }
            hoards.push(held);
        }
        hoards
    }

    #[test]
    fn the_share_shrinks_with_what_is_free() {
        for (limit, taken, share) in [
            (512, 0, 256),
            (512, 127, 129),
            (512, 128, 128),
            (512, 192, 64),
            (512, 248, 8),
            (512, 256, 8),
            (512, 320, 6),
            (512, 384, 4),
            (512, 448, 2),
            (512, 449, 1),
            (512, 511, 1),
            (512, 512, 0),
            (512, 600, 0),
            (64, 0, 32),
            (64, 32, 1),
            (3, 0, 2),
            (3, 1, 1),
            (1, 0, 1),
            (1, 1, 0),
            (0, 0, 0),
        ] {
            assert_eq!(fair_share(limit, taken), share, "{taken} of {limit}");
        }
    }

    #[test]
    fn a_tenant_alone_gets_a_quarter_and_two_that_hang_leave_most_of_the_other_half() {
        assert_eq!(hoards(512)[..5], [128, 64, 32, 16, 8]);
        assert_eq!(hoards(256)[..5], [64, 32, 16, 8, 4]);
        assert_eq!(hoards(64)[..5], [16, 8, 4, 2, 1]);
    }

    #[test]
    fn newcomers_get_a_slot_however_many_up_to_a_bound_hang_on_all_they_may_have() {
        for (limit, tenants) in [(512, 80), (256, 64), (64, 32), (4, 3), (2, 2), (1, 1)] {
            let hoards = hoards(limit);
            assert!(hoards.len() >= tenants, "{limit}: {hoards:?}");
            assert_eq!(hoards.iter().sum::<usize>(), limit, "none is lost");
        }
    }
}

//! The appliance.

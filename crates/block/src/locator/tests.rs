//! Tests of the locators.

//! Access control: API keys and rate limits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;

use crate::config::{Config, ConfigError};
use crate::problem::{Kind, Outcome, Problem};

/// The most token buckets in memory. The bucket of a client unseen for a minute is full again, so
/// it can be dropped.
const MOST_CLIENTS: usize = 100_000;

/// The client of a request: the index of its API key, or its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    Key(usize),
    Address(IpAddr),
}

/// Keys and limits.
pub(crate) struct Access {
    keys: Vec<String>,
    /// The most texts a minute.
    limit: Option<u32>,
    used: Mutex<HashMap<Client, Bucket>>,
}

/// A token bucket: its level and the time of that level.
struct Bucket {
    left: f64,
    at: Instant,
}

impl Access {
    pub(crate) fn new(config: &Config) -> Result<Access, ConfigError> {
        let mut keys = config.key.clone();
        if let Some(path) = &config.key_file {
            keys.extend(read_keys(path)?);
        }
        Ok(Access { keys, limit: config.rate_limit, used: Mutex::default() })
    }

    /// Whether requests must carry a key.
    pub(crate) fn wants_key(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The client of a request. If no keys are configured, a request's key is ignored.
    pub(crate) fn client(&self, key: Option<&str>, address: IpAddr) -> Outcome<Client> {
        if self.keys.is_empty() {
            return Ok(Client::Address(address));
        }
        let Some(given) = key.filter(|key| !key.is_empty()) else {
            return Err(Problem::new(Kind::NoKey, "An API key is needed"));
        };
        // Compare with every key, so that the time does not reveal a near match.
        let mut found = None;
        for (number, key) in self.keys.iter().enumerate() {
            if bool::from(key.as_bytes().ct_eq(given.as_bytes())) {
                found = Some(Client::Key(number));
            }
        }
        found.ok_or_else(|| Problem::new(Kind::WrongKey, "Invalid API key"))
    }

    /// Takes a number of texts from a client's bucket. A request is accepted if the bucket is not
    /// empty and may overdraw it, so that a list longer than the limit can be sent at all.
    pub(crate) fn charge(&self, client: Client, texts: usize, now: Instant) -> Outcome<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        let limit = f64::from(limit);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= MOST_CLIENTS {
            used.retain(|_, bucket| {
                now.duration_since(bucket.at) < Duration::from_secs(60) || bucket.left < 0.0
            });
        }
        let bucket = used.entry(client).or_insert(Bucket { left: limit, at: now });
        let earned = now.duration_since(bucket.at).as_secs_f64() * limit / 60.0;
        bucket.left = (bucket.left + earned).min(limit);
        bucket.at = now;
        if bucket.left < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - bucket.left) * 60.0 / limit);
            let message = format!("Slowdown: {limit} per 1 minute");
            return Err(Problem {
                retry_after: Some(wait),
                ..Problem::new(Kind::RateLimited, message)
            });
        }
        bucket.left -= texts.max(1) as f64;
        Ok(())
    }
}

/// Reads the keys of a file, one a line.
fn read_keys(path: &Path) -> Result<Vec<String>, ConfigError> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::new(&place, error.to_string()))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let keys: Vec<String> = lines.filter(|key| !key.is_empty()).map(str::to_owned).collect();
    match keys.is_empty() {
        true => Err(ConfigError::new(place, "there is no key in it")),
        false => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(keys: &[&str], limit: Option<u32>) -> Access {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Access { keys, limit, used: Mutex::default() }
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn keys() {
        let access = access(&["alpha", "beta"], None);
        assert_eq!(access.client(Some("beta"), HERE).unwrap(), Client::Key(1));
        assert_eq!(access.client(Some("bet"), HERE).unwrap_err().kind, Kind::WrongKey);
        assert_eq!(access.client(None, HERE).unwrap_err().kind, Kind::NoKey);
        assert_eq!(access.client(Some(""), HERE).unwrap_err().kind, Kind::NoKey);
    }

    #[test]
    fn a_limit_is_earned_back() {
        let access = access(&[], Some(60));
        let client = access.client(Some("ignored"), HERE).unwrap();
        let start = Instant::now();
        for _ in 0..60 {
            access.charge(client, 1, start).unwrap();
        }
        let refused = access.charge(client, 1, start).unwrap_err();
        assert_eq!(
            (refused.kind, refused.retry_after),
            (Kind::RateLimited, Some(Duration::from_secs(1)))
        );
        access.charge(client, 100, start + Duration::from_secs(2)).unwrap();
        assert!(access.charge(client, 1, start + Duration::from_secs(60)).is_err());
        assert!(access.charge(client, 1, start + Duration::from_secs(102)).is_ok());
    }
}

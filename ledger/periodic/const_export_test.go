package periodic

// MaxEvery is the longest Every and FixedDelay.
const MaxEvery = maxEvery

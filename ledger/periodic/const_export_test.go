package periodic

// MaxEvery is the longest Every and After.
const MaxEvery = maxEvery

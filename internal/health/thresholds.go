package health

import (
	"fmt"
	"time"
)

// withThresholds returns a configuration with the default of each threshold that c does not set.
func (c Config) withThresholds() Config {
	given := c.Thresholds
	c.Thresholds = make(map[Name]time.Duration)
	for _, d := range definitions {
		if c.Thresholds[d.Name] = given[d.Name]; c.Thresholds[d.Name] == 0 {
			c.Thresholds[d.Name] = d.Threshold
		}
	}
	return c
}

// thresholdFaults returns the faults of Thresholds.
func (c Config) thresholdFaults() (faults []error) {
	for name := range c.Thresholds {
		if d, found := Define(name); !found || d.Threshold == 0 {
			faults = append(faults, fmt.Errorf("health: %q must be a condition with a threshold", name))
		}
	}
	return faults
}

// isExceeded reports whether a duration exceeds a threshold whose default is set.
func isExceeded(d, threshold time.Duration) bool { return threshold >= 0 && d > threshold }

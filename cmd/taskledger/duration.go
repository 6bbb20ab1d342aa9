package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// duration is a flag's value: a [time.Duration] that may begin with days of 24 hours, such as 3d or 1d12h.
type duration time.Duration

// addDuration adds a flag whose default is the value of d.
func addDuration(flags *pflag.FlagSet, d *time.Duration, name, usage string) {
	f := flags.VarPF((*duration)(d), name, "", usage)
	if *d == 0 {
		f.DefValue = "" // help does not show it
	}
}

func (d *duration) String() string { return time.Duration(*d).String() }
func (d *duration) Type() string   { return "duration" }

var withDays = regexp.MustCompile(`^([0-9]+)d(.*)$`)

// maxDays is how many whole days a [time.Duration] can hold.
const maxDays = math.MaxInt64 / (24 * int64(time.Hour))

// Set implements pflag.Value.
func (d *duration) Set(s string) error {
	value, err := parseDuration(s)
	*d = duration(value)
	return err
}

// parseDuration is [time.ParseDuration] with days.
func parseDuration(s string) (time.Duration, error) {
	m := withDays.FindStringSubmatch(s)
	if m == nil {
		return time.ParseDuration(s)
	}
	days, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || days >= maxDays {
		return 0, fmt.Errorf("must be less than %d days", maxDays)
	}
	var rest time.Duration
	if m[2] != "" {
		if rest, err = time.ParseDuration(m[2]); err != nil {
			return 0, err
		}
	}
	if rest < 0 || rest >= 24*time.Hour {
		return 0, fmt.Errorf("the time after the days must be less than 24h, got %s", m[2])
	}
	return time.Duration(days)*24*time.Hour + rest, nil
}

package operator

import (
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config configures an [Operator].
type Config struct {
	// DB is the primary. Required.
	DB *pgxpool.Pool
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	if c.DB == nil {
		return errors.New("operator: DB is required")
	}
	return nil
}

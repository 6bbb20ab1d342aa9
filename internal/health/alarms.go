package health

import (
	"context"
	"fmt"
)

func checkAlarms(ctx context.Context, c Config, r *Report) error {
	if c.Alarms == nil {
		return nil
	}
	undelivered, err := c.Alarms(ctx, c.DB)
	if err != nil {
		return err
	}
	for _, a := range undelivered {
		r.Alarms = append(r.Alarms, a)
		r.add(Condition{
			Name: AlarmUndelivered, About: string(a.Alarm), Since: a.MadeAt,
			Text: fmt.Sprintf("alarm %s could not be delivered: %s", a.Alarm, a.Error),
		})
	}
	return nil
}

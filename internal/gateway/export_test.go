package gateway

import "time"

// SetBounds sets how long a client may take over its request, and over each stretch of
// the answer.
func (g *Gateway) SetBounds(body, stall time.Duration) { g.bodyTime, g.stall = body, stall }

package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// stateData is the JSON form of a State.
type stateData struct {
	Point   string          `json:"point"`
	Hooks   []string        `json:"hooks"` // the chain's modify lane
	At      int             `json:"at"`
	Payload json.RawMessage `json:"payload"`
	Changed bool            `json:"changed,omitempty"`
	Holds   []Held          `json:"holds,omitempty"`
	Covered string          `json:"covered,omitempty"`
	End     *endData        `json:"end,omitempty"`
}

// endData is a result without what the state already has.
type endData struct {
	Kind     Kind     `json:"kind"`
	Reason   string   `json:"reason,omitempty"`
	Feedback string   `json:"feedback,omitempty"`
	Hook     string   `json:"hook,omitempty"`
	Failure  *Failure `json:"failure,omitempty"`
	Refused  bool     `json:"refused,omitempty"`
}

// MarshalJSON writes the state with the names of its point and hooks.
func (s State) MarshalJSON() ([]byte, error) {
	if s.Payload.point == nil {
		return nil, errors.New("a state without a payload has no JSON form")
	}
	payload, err := s.Payload.MarshalJSON()
	if err != nil {
		return nil, err
	}
	d := stateData{Point: s.Payload.point.Name, Hooks: s.chain.names(), At: s.At, Payload: payload,
		Changed: s.Changed, Holds: s.Holds, Covered: s.Covered}
	if s.Over {
		d.End = &endData{Kind: s.End.Kind, Reason: s.End.Reason, Feedback: s.End.Feedback, Failure: s.End.Failure, Refused: s.End.Refused}
		if s.End.Hook != nil {
			d.End.Hook = s.End.Hook.Name
		}
	}
	return encode(d)
}

// Resume reads a state that was kept as JSON and gives it its chain back. The
// chain must have the hooks that it had: an answer is folded by its place in it.
func Resume(c *Chain, data []byte) (State, error) {
	var d stateData
	if err := json.Unmarshal(data, &d); err != nil {
		return State{}, fmt.Errorf("state of a chain: %w", err)
	}
	point := PointNamed(d.Point)
	if point == nil {
		return State{}, fmt.Errorf("state of a chain: unknown point %q", d.Point)
	}
	if names := c.names(); !slices.Equal(names, d.Hooks) || (c != nil && c.point != point) {
		return State{}, fmt.Errorf("the state belongs to hooks %q at %s, not to %q", d.Hooks, d.Point, names)
	}
	p, err := ReadPayload(point, d.Payload)
	if err != nil {
		return State{}, err
	}
	s := State{chain: c, At: d.At, Payload: p, Changed: d.Changed, Holds: d.Holds, Covered: d.Covered}
	if e := d.End; e != nil {
		end := s.end(e.Kind, c.named(e.Hook))
		end.Reason, end.Feedback, end.Failure, end.Refused = e.Reason, e.Feedback, e.Failure, e.Refused
	}
	if s.At < 0 || s.At > c.Modify() || (s.At == c.Modify() && s.next() == NeedHook) {
		return State{}, fmt.Errorf("state of a chain: hook %d of %d is no place in it", s.At, c.Modify())
	}
	return s, nil
}

// UnmarshalJSON refuses: a state without its chain is no use. See [Resume].
func (s *State) UnmarshalJSON([]byte) error {
	return errors.New("read the state of a chain with hook.Resume, which gives it its hooks back")
}

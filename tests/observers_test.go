package tests

import "testing"

func (s *stage) observers(t *testing.T) {}

-- Why the last firing failed, so that whoever looks at a timer sees it without reading a log.

-- At most 1 000 characters. Null until a firing of the schedule in force has failed.
ALTER TABLE timer_schedules ADD COLUMN last_error TEXT;

"""Operations on a partition of rows that the inference methods share."""
